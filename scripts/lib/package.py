"""Packs the functions that scripts/package has built, and checks the packages: package.py FOLDER
MACHINE."""

import pathlib
import re
import struct
import sys
import zipfile

# Limits in MB, zipped: Lambda fetches and unpacks the zip at a cold start. Raise them with a
# reason: those of the worker were raised for the SDK of Lambda and for decoders of Brotli and zstd.
LIMITS = {
    "aarch64": {"everfresh-worker": 6.3, "everfresh-serve": 4.9, "everfresh-maintenance": 4.9},
    "x86_64": {"everfresh-worker": 7.7, "everfresh-serve": 6.1, "everfresh-maintenance": 6.1},
}
# e_machine in the ELF header.
MACHINES = {"aarch64": 183, "x86_64": 62}
# The glibc of provided.al2023.
GLIBC = (2, 34)


def pack(binary, package):
    """Packs reproducibly: the same binary gives the same zip."""
    entry = zipfile.ZipInfo("bootstrap", date_time=(1980, 1, 1, 0, 0, 0))
    entry.external_attr = 0o100755 << 16
    entry.create_system = 3  # Unix: keeps the executable bit
    with zipfile.ZipFile(package, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as file:
        file.writestr(entry, binary.read_bytes(), zipfile.ZIP_DEFLATED, 9)


def glibc(content):
    """The newest version of glibc that an imported symbol needs."""
    return max(tuple(map(int, found.split(b"."))) for found in re.findall(rb"\0GLIBC_(\d+\.\d+)", content))


def main(folder, machine):
    failed = False
    print(f"{'function':22} {'machine':8} {'glibc':>6} {'binary MB':>10} {'zip MB':>7} {'limit':>7}")
    for name, limit in LIMITS[machine].items():
        binary, package = folder / name / "bootstrap", folder / f"{name}.zip"
        pack(binary, package)
        content = binary.read_bytes()
        [built_for] = struct.unpack_from("<H", content, 18)
        needs, size = glibc(content), package.stat().st_size / 1e6
        version = ".".join(map(str, needs))
        print(f"{name:22} {machine:8} {version:>6} {len(content) / 1e6:10.2f} {size:7.2f} {limit:7.1f}")
        complaints = {
            f"is not built for {machine}": built_for != MACHINES[machine],
            f"needs glibc {version}, but Lambda has {GLIBC[0]}.{GLIBC[1]}": needs > GLIBC,
            f"exceeds its limit of {limit} MB": size > limit,
        }
        for complaint in (text for text, true in complaints.items() if true):
            failed = True
            print(f"{name} {complaint}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]), sys.argv[2]))

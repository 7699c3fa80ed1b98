"""Packs the functions that scripts/package has built, and says what they weigh: package.py FOLDER MACHINE."""

import pathlib
import re
import struct
import sys
import zipfile

# MB, zipped, for Lambda fetches and unpacks the zip at a cold start. A tenth above what they weigh today: room to work in, and too little for
# an SDK or a TLS library more that came in with a dependency. Who has a reason to go beyond it raises it here.
BUDGETS = {
    "aarch64": {"everfresh-worker": 5.6, "everfresh-serve": 4.6},
    "x86_64": {"everfresh-worker": 6.9, "everfresh-serve": 5.8},
}
# What the ELF header calls them.
MACHINES = {"aarch64": 183, "x86_64": 62}
# What provided.al2023 has.
GLIBC = (2, 34)


def pack(binary, package):
    """The same binary gives the same zip, wherever and whenever it is packed."""
    entry = zipfile.ZipInfo("bootstrap", date_time=(1980, 1, 1, 0, 0, 0))
    entry.external_attr = 0o100755 << 16
    entry.create_system = 3  # Unix, so that it stays executable
    with zipfile.ZipFile(package, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as file:
        file.writestr(entry, binary.read_bytes(), zipfile.ZIP_DEFLATED, 9)


def glibc(content):
    """The newest version of glibc that any imported symbol asks for."""
    return max(tuple(map(int, found.split(b"."))) for found in re.findall(rb"\0GLIBC_(\d+\.\d+)", content))


def main(folder, machine):
    failed = False
    print(f"{'function':18} {'machine':8} {'glibc':>6} {'binary MB':>10} {'zip MB':>7} {'budget':>7}")
    for name, budget in BUDGETS[machine].items():
        binary, package = folder / name / "bootstrap", folder / f"{name}.zip"
        pack(binary, package)
        content = binary.read_bytes()
        [built_for] = struct.unpack_from("<H", content, 18)
        needs, size = glibc(content), package.stat().st_size / 1e6
        version = ".".join(map(str, needs))
        print(f"{name:18} {machine:8} {version:>6} {len(content) / 1e6:10.2f} {size:7.2f} {budget:7.1f}")
        complaints = {
            f"is not built for {machine}": built_for != MACHINES[machine],
            f"needs glibc {version}, and Lambda has {GLIBC[0]}.{GLIBC[1]}": needs > GLIBC,
            f"is over its budget of {budget} MB": size > budget,
        }
        for complaint in (text for text, true in complaints.items() if true):
            failed = True
            print(f"{name} {complaint}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]), sys.argv[2]))

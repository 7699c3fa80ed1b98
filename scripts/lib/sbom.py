"""Writes a CycloneDX 1.5 bill of materials for each Lambda crate.

    python3 scripts/lib/sbom.py TARGET FOLDER CRATE...

Contains normal and build dependencies, but no dev-dependencies. Reproducible: no timestamp, no
random serial number.
"""

import hashlib
import json
import pathlib
import subprocess
import sys
import uuid


def cargo(*arguments):
    return subprocess.run(["cargo", *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout


def built(crate, target):
    """Names and versions of the dependencies of the crate alone. The graph in the metadata has the
    features of the whole workspace."""
    tree = cargo("tree", "--locked", "--package", crate, "--target", target, "--edges", "normal,build", "--prefix", "none", "--format", "{p}")
    lines = (line.split() for line in tree.splitlines() if line.strip())
    return {(name, version.removeprefix("v")) for name, version, *_ in lines}


def closure(packages, nodes, root, wanted):
    """The ids of `root` and its dependencies, each with its own dependencies."""
    edges, todo = {}, [root]
    while todo:
        package = todo.pop()
        if package in edges:
            continue
        needed = [dep["pkg"] for dep in nodes[package]["deps"] if any(kind["kind"] != "dev" for kind in dep["dep_kinds"])]
        needed = [id for id in needed if (packages[id]["name"], packages[id]["version"]) in wanted]
        edges[package] = sorted(set(needed))
        todo.extend(needed)
    return edges


def purl(package):
    return f"pkg:cargo/{package['name']}@{package['version']}"


def component(package, kind, checksums):
    described = {
        "type": kind,
        "bom-ref": purl(package),
        "name": package["name"],
        "version": package["version"],
        "purl": purl(package),
        # `MIT/Apache-2.0` is an old notation for OR.
        "licenses": [{"expression": " OR ".join(part.strip() for part in package["license"].split("/"))}],
    }
    if package["description"]:
        described["description"] = " ".join(package["description"].split())
    if checksum := checksums.get((package["name"], package["version"])):
        described["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    if package["repository"]:
        described["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
    return described


def lock_checksums(lock):
    """From Cargo.lock, read by line: Python has a TOML parser only since 3.11."""
    found, name, version = {}, None, None
    for line in lock.read_text().splitlines():
        key, _, value = line.partition(" = ")
        if key == "name":
            name = value.strip('"')
        elif key == "version":
            version = value.strip('"')
        elif key == "checksum":
            found[name, version] = value.strip('"')
    return found


def bom(metadata, crate, checksums, wanted):
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    (root,) = [id for id in metadata["workspace_members"] if packages[id]["name"] == crate]
    edges = closure(packages, nodes, root, wanted)
    assert len(edges) == len(wanted), f"cargo tree lists {len(wanted)} packages, the metadata has {len(edges)} of them"
    parts = sorted((packages[id] for id in edges if id != root), key=purl)
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": component(packages[root], "application", checksums)},
        "components": [component(package, "library", checksums) for package in parts],
        "dependencies": sorted(
            ({"ref": purl(packages[id]), "dependsOn": sorted(purl(packages[dep]) for dep in deps)} for id, deps in edges.items()),
            key=lambda entry: entry["ref"],
        ),
    }
    digest = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).digest()
    return {**document, "serialNumber": f"urn:uuid:{uuid.UUID(bytes=digest[:16], version=4)}"}


def main():
    target, folder, crates = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3:]
    metadata = json.loads(cargo("metadata", "--locked", "--format-version", "1", "--filter-platform", target))
    checksums = lock_checksums(pathlib.Path(metadata["workspace_root"]) / "Cargo.lock")
    folder.mkdir(parents=True, exist_ok=True)
    for crate in crates:
        document = bom(metadata, crate, checksums, built(crate, target))
        (folder / f"{crate}.json").write_text(json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n")
        licences = sorted({entry["licenses"][0]["expression"] for entry in document["components"]})
        print(f"{crate}: {len(document['components'])} components, {len(licences)} licence expressions")


main()

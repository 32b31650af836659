import gzip
import io
import tarfile

import pytest

from keras_vit.export.errors import ExportError
from keras_vit.export.hub import archives


@pytest.fixture
def module(tmp_path):
    """Something with the files of a module."""
    directory = tmp_path / "module"
    (directory / "variables").mkdir(parents=True)
    (directory / "assets").mkdir()
    (directory / "saved_model.pb").write_bytes(b"graph")
    (directory / "variables/variables.index").write_bytes(b"index")
    return directory


def write(file, *entries):
    """Writes a .tar.gz of (name, type, content or link) entries."""
    with tarfile.open(file, "w:gz") as tar:
        for name, kind, content in entries:
            entry = tarfile.TarInfo(name)
            entry.type = kind
            if kind == tarfile.REGTYPE:
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
            else:
                entry.linkname = content
                tar.addfile(entry)
    return file


def test_the_module_is_the_root_without_owners_and_times(module, tmp_path):
    file = archives.pack(module, tmp_path / "out/module.tar.gz")
    with tarfile.open(file) as tar:
        entries = tar.getmembers()
    names = ["assets", "saved_model.pb", "variables", "variables/variables.index"]
    assert [e.name for e in entries] == names
    assert {(e.uid, e.gid, e.uname, e.gname, e.mtime) for e in entries} == {(0, 0, "", "", 0)}
    again = archives.pack(module, tmp_path / "again.tar.gz")
    assert file.read_bytes() == again.read_bytes()


def test_unpacking_gives_the_files_back(module, tmp_path):
    with archives.unpacked(archives.pack(module, tmp_path / "m.tar.gz")) as directory:
        found = {
            p.relative_to(directory).as_posix(): p.read_bytes() if p.is_file() else None
            for p in directory.rglob("*")
        }
    assert found == {
        "assets": None,
        "saved_model.pb": b"graph",
        "variables": None,
        "variables/variables.index": b"index",
    }
    assert not directory.exists()
    with archives.unpacked(module) as same:
        assert same == module


def test_only_modules_are_packed(tmp_path):
    with pytest.raises(ExportError, match=r"saved_model\.pb"):
        archives.pack(tmp_path, tmp_path / "m.tar.gz")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "entry",
    [
        ("../outside.txt", tarfile.REGTYPE, b"!"),
        ("a/../../outside.txt", tarfile.REGTYPE, b"!"),
        ("/tmp/keras-vit-outside.txt", tarfile.REGTYPE, b"!"),
        ("a\\..\\..\\outside.txt", tarfile.REGTYPE, b"!"),
        ("link", tarfile.SYMTYPE, "/etc/passwd"),
        ("link", tarfile.LNKTYPE, "saved_model.pb"),
        ("pipe", tarfile.FIFOTYPE, ""),
        ("device", tarfile.CHRTYPE, ""),
    ],
)
def test_nothing_leaves_the_directory(tmp_path, entry):
    file = write(tmp_path / "m.tar.gz", ("saved_model.pb", tarfile.REGTYPE, b"graph"), entry)
    target = tmp_path / "deep/target"
    target.mkdir(parents=True)
    with pytest.raises(ExportError, match="not unpacked"):
        archives.unpack(file, target)
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["deep", "m.tar.gz", "target"]


def test_a_bomb_is_refused_by_its_first_header(tmp_path):
    bomb = tarfile.TarInfo("bomb")
    bomb.size = 2**40
    (tmp_path / "m.tar.gz").write_bytes(gzip.compress(bomb.tobuf()))
    with pytest.raises(ExportError, match="members claim 1099511627776 bytes, and the file has"):
        archives.unpack(tmp_path / "m.tar.gz", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_damaged_archives_are_told_in_one_line(module, tmp_path):
    (module / "saved_model.pb").write_bytes(bytes(range(256)) * 40)
    whole = archives.pack(module, tmp_path / "module.tar.gz").read_bytes()
    damaged = tmp_path / "damaged.tar.gz"
    for content in (whole[: len(whole) // 2], b"not an archive", b""):
        damaged.write_bytes(content)
        with pytest.raises(ExportError, match="cannot be unpacked"), archives.unpacked(damaged):
            pass
    refused = 0
    for position in range(10, len(whole)):
        damaged.write_bytes(
            whole[:position] + bytes([whole[position] ^ 255]) + whole[position + 1 :]
        )
        try:
            archives.unpack(damaged, tmp_path / "out")
        except ExportError as error:
            refused += "cannot be unpacked" in str(error)
    assert refused

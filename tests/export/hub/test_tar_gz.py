import gzip
import io
import tarfile

import pytest

from keras_vit.export.errors import ExportError
from keras_vit.export.hub import tar_gz


@pytest.fixture
def module(tmp_path):
    directory = tmp_path / "module"
    (directory / "variables").mkdir(parents=True)
    (directory / "assets").mkdir()
    (directory / "saved_model.pb").write_bytes(bytes(range(256)) * 40)
    (directory / "variables/variables.index").write_bytes(b"index")
    return directory


def test_the_module_is_the_root_without_owners_and_times(module, tmp_path):
    file = tar_gz.pack(module, tmp_path / "out/module.tar.gz")
    with tarfile.open(file) as tar:
        entries = tar.getmembers()
    names = ["assets", "saved_model.pb", "variables", "variables/variables.index"]
    assert [e.name for e in entries] == names
    assert {(e.uid, e.gid, e.uname, e.gname, e.mtime) for e in entries} == {(0, 0, "", "", 0)}
    assert file.read_bytes() == tar_gz.pack(module, tmp_path / "again.tar.gz").read_bytes()
    with tar_gz.unpacked(file) as directory:
        assert {path.relative_to(directory).as_posix() for path in directory.rglob("*")} == {*names}
        content = (directory / "saved_model.pb").read_bytes()
    assert content == (module / "saved_model.pb").read_bytes() and not directory.exists()
    with tar_gz.unpacked(module) as same:
        assert same == module
    with pytest.raises(ExportError, match=r"saved_model\.pb"):
        tar_gz.pack(tmp_path, tmp_path / "m.tar.gz")


@pytest.mark.rows(
    ("a/../../outside.txt", tarfile.REGTYPE, ""),
    *(("link", kind, "saved_model.pb") for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE)),
    *(("device", kind, "") for kind in (tarfile.FIFOTYPE, tarfile.CHRTYPE)),
)
def test_nothing_leaves_the_directory(name, kind, link, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = kind, link
    file = archive_of(tmp_path, tarfile.TarInfo("saved_model.pb"), entry)
    with pytest.raises(ExportError, match="cannot be unpacked"), tar_gz.unpacked(file):
        pass
    assert [*tmp_path.rglob("*")] == [file]


def archive_of(folder, *entries):
    with tarfile.open(folder / "m.tar.gz", "w:gz") as tar:
        for entry in entries:
            tar.addfile(entry, io.BytesIO())
    return folder / "m.tar.gz"


def test_an_absolute_path_is_unpacked_inside_and_a_bomb_refused(tmp_path):
    file = archive_of(tmp_path, tarfile.TarInfo(str(tmp_path / "outside.txt")))
    with tar_gz.unpacked(file) as directory:
        assert [path.name for path in directory.rglob("*.txt")] == ["outside.txt"]
    assert not (tmp_path / "outside.txt").exists()
    bomb, file = tarfile.TarInfo("bomb"), tmp_path / "m.tar.gz"
    bomb.size = 2**40
    file.write_bytes(gzip.compress(bomb.tobuf()))
    refused = pytest.raises(ExportError, match="members claim 1099511627776 bytes, and the file")
    with refused, tar_gz.unpacked(file):
        pass


def test_damaged_archives_are_told_in_one_line(module, tmp_path):
    whole = tar_gz.pack(module, tmp_path / "module.tar.gz").read_bytes()
    damaged, refused = tmp_path / "damaged.tar.gz", 0
    places = range(10, len(whole))
    flipped = [whole[:at] + bytes([whole[at] ^ 255]) + whole[at + 1 :] for at in places]
    for content in (whole[: len(whole) // 2], b"not an archive", b"", *flipped):
        damaged.write_bytes(content)
        try:
            with tar_gz.unpacked(damaged):
                pass
        except ExportError as error:
            refused += "cannot be unpacked" in str(error)
    assert refused >= 4

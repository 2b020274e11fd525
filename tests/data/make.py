"""Small real files of every kind that `dendrax.data` reads, and small data to put into them."""

import gzip
import io
import json
import struct
import tarfile
import zipfile

import numpy as np

from dendrax.data._idx import FILES
from dendrax.data._images import Images, digest


def small_images(shape=(28, 28), train=20, test=10, seed=0) -> Images:
    """Noise, with the ten classes equally often."""
    draw = np.random.default_rng(seed)
    arrays = []
    for count in (train, test):
        arrays.append(draw.integers(0, 256, (count, *shape), np.uint8))
        arrays.append(draw.permutation(np.arange(count, dtype=np.uint8) % 10))
    return Images(*arrays)


def digests(images):
    return tuple(digest(array) for array in images)


def same(found, expected):
    return all(
        a.dtype == b.dtype and np.array_equal(a, b) for a, b in zip(found, expected, strict=True)
    )


def idx(array) -> bytes:
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


def write_idx(folder, images, suffix=".gz"):
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in zip(FILES, images, strict=True):
        content = idx(array)
        (folder / (name + suffix)).write_bytes(gzip.compress(content) if suffix else content)


def write_zip(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def tar(members, mode) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode=mode) as archive:
        for name, content in members.items():
            header = tarfile.TarInfo(name)
            header.size = len(content)
            archive.addfile(header, io.BytesIO(content))
    return stream.getvalue()


def ar(members) -> bytes:
    content = b"!<arch>\n"
    for name, member in members.items():
        content += f"{name:<16}{0:<12}{0:<6}{0:<6}{644:<8}{len(member):<10}`\n".encode()
        content += member + b"\n" * (len(member) % 2)
    return content


def deb(images) -> bytes:
    """As Debian builds it: the files are in a tar file, in an ar file."""
    folder = "./usr/share/datasets/fashion-mnist"
    files = {f"{folder}/{n}.gz": gzip.compress(idx(a)) for n, a in zip(FILES, images, strict=True)}
    control, data = tar({"./control": b"Package: x\n"}, "w:xz"), tar(files, "w:xz")
    return ar({"debian-binary": b"2.0\n", "control.tar.xz": control, "data.tar.xz": data})


def encode(pixels, kind="PNG", mode=None) -> bytes:
    from PIL import Image

    stream = io.BytesIO()
    image = Image.fromarray(pixels)
    (image.convert(mode) if mode else image).save(stream, kind)
    return stream.getvalue()


def mnist_wheel(images) -> dict[str, bytes]:
    pixels = np.concatenate([images.train_images, images.test_images]).reshape(-1, 784)
    labels = np.concatenate([images.train_labels, images.test_labels])
    one_hot = np.eye(10, dtype=np.uint8)[labels]
    folder = "tfjs_mnist/static"
    return {
        f"{folder}/mnist_images.png": encode(pixels),
        f"{folder}/mnist_labels_uint8": one_hot.tobytes(),
    }


def cifar_package(images) -> dict[str, bytes]:
    batches = [*np.split(images.train_images, 5), images.test_images]
    names = [*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"]
    members = {
        f"package/{name}.png": encode(batch.reshape(-1, 1024, 3))
        for name, batch in zip(names, batches, strict=True)
    }
    members["package/train_lables.json"] = json.dumps(images.train_labels.tolist()).encode()
    members["package/test_lables.json"] = json.dumps(images.test_labels.tolist()).encode()
    return members


def cifar_binary(images) -> dict[str, bytes]:
    pixels = np.concatenate([images.train_images, images.test_images])
    labels = np.concatenate([images.train_labels, images.test_labels])
    planes = pixels.transpose(0, 3, 1, 2).reshape(-1, 3072)
    records = np.concatenate([labels[:, None], planes], axis=1)
    names = [*(f"data_batch_{k}.bin" for k in range(1, 6)), "test_batch.bin"]
    return {n: part.tobytes() for n, part in zip(names, np.split(records, 6), strict=True)}

"""Converts numbers, images, sounds, texts and curves to TensorBoard's messages."""

from __future__ import annotations

import io
import struct
import wave
from importlib import import_module
from typing import Any

from tensorboard.compat.proto.summary_pb2 import (
    HistogramProto,
    Summary,
    SummaryMetadata,
)
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto

np: Any = import_module("numpy")  # which the package `tensorboard` needs

__all__ = [
    "array_of", "audio", "curve", "histogram", "histogram_raw", "image", "scalar", "tensor", "text",
    "tiled", "video",
]  # fmt: skip

_DTYPES = {"float32": 1, "float64": 2, "int32": 3, "uint8": 4, "int64": 9, "bool": 10}
_STRING = 7


def array_of(value: Any) -> Any:
    """A NumPy array of a tensor, array or number.

    Raises:
        NotImplementedError: another type.
    """
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        return value.float().numpy() if str(value.dtype) == "torch.bfloat16" else value.numpy()
    if isinstance(value, (int, float, list, tuple, np.ndarray, np.generic)):
        return np.asarray(value)
    raise NotImplementedError(
        f"Got {type(value)}, but numpy array or torch tensor are expected.\nhint: convert it"
    )


def scalar(tag: str, value: Any, new_style: bool = False, double_precision: bool = False) -> Any:
    """A number.

    Raises:
        AssertionError: more than one.
    """
    numbers = array_of(value).squeeze()
    if numbers.ndim != 0:
        raise AssertionError(f"Tensor should contain one element, got {numbers.size}")
    number = float(numbers)
    if not (new_style or double_precision):
        return Summary(value=[Summary.Value(tag=tag, simple_value=number)])
    kind = "float64" if double_precision else "float32"
    message = TensorProto(dtype=_DTYPES[kind])
    (message.double_val if double_precision else message.float_val).append(number)
    plugin = SummaryMetadata.PluginData(plugin_name="scalars")
    metadata = SummaryMetadata(plugin_data=plugin)
    return Summary(value=[Summary.Value(tag=tag, tensor=message, metadata=metadata)])


def _shape(array: Any) -> Any:
    return TensorShapeProto(dim=[TensorShapeProto.Dim(size=size) for size in array.shape])


def tensor(tag: str, value: Any, plugin: str = "tensor", content: bytes = b"") -> Any:
    """An array, for a plugin."""
    array = array_of(value)
    message = TensorProto(
        dtype=_DTYPES[str(array.dtype)],
        tensor_shape=_shape(array),
        tensor_content=np.ascontiguousarray(array).tobytes(),
    )
    data = SummaryMetadata.PluginData(plugin_name=plugin, content=content)
    metadata = SummaryMetadata(plugin_data=data)
    return Summary(value=[Summary.Value(tag=tag, metadata=metadata, tensor=message)])


def text(tag: str, content: str) -> Any:
    """A text (Markdown)."""
    from tensorboard.plugins.text.plugin_data_pb2 import TextPluginData

    data = SummaryMetadata.PluginData(
        plugin_name="text", content=TextPluginData(version=0).SerializeToString()
    )
    message = TensorProto(
        dtype=_STRING,
        string_val=[content.encode("utf-8")],
        tensor_shape=TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)]),
    )
    return Summary(
        value=[
            Summary.Value(
                tag=tag + "/text_summary",
                metadata=SummaryMetadata(plugin_data=data),
                tensor=message,
            )
        ]
    )


def _default_bins() -> list[float]:
    """Limits that grow by a tenth, of both signs."""
    positive, value = [], 1e-12
    while value < 1e20:
        positive.append(value)
        value *= 1.1
    return [-v for v in reversed(positive)] + [0.0] + positive


def histogram(tag: str, values: Any, bins: Any, max_bins: int | None = None) -> Any:
    """How often values fall between limits.

    Raises:
        ValueError: no values.
    """
    numbers = array_of(values).astype(np.float64).reshape(-1)
    if numbers.size == 0:
        raise ValueError("The input has no element.")
    limits = _default_bins() if isinstance(bins, str) and bins == "tensorflow" else bins
    counts, limits = np.histogram(numbers, bins=limits)
    if max_bins is not None and len(counts) > max_bins:
        step = len(counts) // max_bins
        counts = np.add.reduceat(counts, np.arange(0, len(counts), step))
        limits = np.append(limits[:-1:step], limits[-1])
    filled = np.flatnonzero(counts)
    first, last = int(filled[0]), int(filled[-1])
    bucket_counts = counts[max(first - 1, 0) : last + 1].tolist()
    edges = limits[max(first, 1) : last + 2].tolist()
    if first == 0:  # the lowest limit is that of an empty bin
        bucket_counts, edges = [0, *bucket_counts], limits[: last + 2].tolist()
    message = HistogramProto(
        min=numbers.min(),
        max=numbers.max(),
        num=numbers.size,
        sum=numbers.sum(),
        sum_squares=float(numbers.dot(numbers)),
        bucket_limit=edges,
        bucket=bucket_counts,
    )
    return Summary(value=[Summary.Value(tag=tag, histo=message)])


def histogram_raw(
    tag: str,
    minimum: Any,
    maximum: Any,
    num: Any,
    total: Any,
    sum_squares: Any,
    bucket_limits: Any,
    bucket_counts: Any,
) -> Any:
    """A histogram that is counted already."""
    message = HistogramProto(
        min=float(minimum),
        max=float(maximum),
        num=int(num),
        sum=float(total),
        sum_squares=float(sum_squares),
        bucket_limit=array_of(bucket_limits).tolist(),
        bucket=array_of(bucket_counts).tolist(),
    )
    return Summary(value=[Summary.Value(tag=tag, histo=message)])


def tiled(array: Any, dataformats: str) -> Any:
    """An image, or a grid of images, as height x width x channels (1, 3 or 4).

    Raises:
        AssertionError: other dimensions than `dataformats` names.
    """
    formats = dataformats.upper()
    if len(set(formats)) != len(formats) or array.ndim != len(formats):
        raise AssertionError(
            f"size of input tensor and input format are different. tensor shape: {array.shape}, "
            f"input_format: {dataformats}"
        )
    if "N" not in formats:
        if "C" not in formats:
            return array.transpose([formats.index(c) for c in "HW"])[..., None]
        return array.transpose([formats.index(c) for c in "HWC"])
    images = array.transpose([formats.index(c) for c in "NHWC"])
    columns = min(8, len(images))
    rows = -(-len(images) // columns)
    missing = rows * columns - len(images)
    images = np.concatenate([images, np.zeros((missing, *images.shape[1:]), images.dtype)])
    _, height, width, channels = images.shape
    grid = images.reshape(rows, columns, height, width, channels).swapaxes(1, 2)
    return grid.reshape(rows * height, columns * width, channels)


def _bytes_of(array: Any) -> Any:
    """Elements from 0 to 255."""
    if array.dtype == np.uint8:
        return array
    return np.clip(array * 255.0, 0, 255).astype(np.uint8)


def image(tag: str, value: Any, dataformats: str = "NCHW", rescale: float = 1, boxes: Any = None,
          labels: Any = None) -> Any:  # fmt: skip
    """An image, with boxes drawn on it where there are any; needs Pillow."""
    from PIL import Image, ImageDraw

    pixels = _bytes_of(tiled(array_of(value), dataformats))
    picture = Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
    if boxes is not None:
        picture = picture.convert("RGB")
        draw = ImageDraw.Draw(picture)
        for number, box in enumerate(array_of(boxes).tolist()):
            draw.rectangle(box, outline="red", width=2)
            if labels is not None:
                draw.text((box[0] + 2, box[1] + 2), str(labels[number]), fill="red")
    if rescale != 1:
        size = (int(picture.width * rescale), int(picture.height * rescale))
        picture = picture.resize(size)
    stream = io.BytesIO()
    picture.save(stream, format="PNG")
    message = Summary.Image(
        height=picture.height,
        width=picture.width,
        colorspace=len(picture.getbands()),
        encoded_image_string=stream.getvalue(),
    )
    return Summary(value=[Summary.Value(tag=tag, image=message)])


def video(tag: str, value: Any, fps: float = 4) -> Any:
    """Frames (N, T, C, H, W), side by side, as an animated GIF; needs Pillow."""
    from PIL import Image

    frames = _bytes_of(array_of(value))
    pictures = [
        Image.fromarray(grid[..., 0] if grid.shape[-1] == 1 else grid)
        for grid in (tiled(frames[:, step], "NCHW") for step in range(frames.shape[1]))
    ]
    stream = io.BytesIO()
    pictures[0].save(
        stream, format="GIF", save_all=True, append_images=pictures[1:], loop=0, duration=1000 / fps
    )
    message = Summary.Image(
        height=pictures[0].height,
        width=pictures[0].width,
        colorspace=3,
        encoded_image_string=stream.getvalue(),
    )
    return Summary(value=[Summary.Value(tag=tag, image=message)])


def audio(tag: str, value: Any, sample_rate: int = 44100) -> Any:
    """Samples between -1 and 1, as WAV of 16 bits."""
    samples = np.clip(array_of(value).squeeze(), -1, 1)
    if samples.ndim != 1:
        raise AssertionError("input tensor should be 1 dimensional.")
    numbers = (samples * np.iinfo(np.int16).max).astype("<i2")
    stream = io.BytesIO()
    with wave.open(stream, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(sample_rate)
        file.writeframes(struct.pack(f"<{len(numbers)}h", *numbers.tolist()))
    message = Summary.Audio(
        sample_rate=sample_rate,
        num_channels=1,
        length_frames=len(numbers),
        encoded_audio_string=stream.getvalue(),
        content_type="audio/wav",
    )
    return Summary(value=[Summary.Value(tag=tag, audio=message)])


def curve(tag: str, rows: Any, thresholds: int) -> Any:
    """A precision-recall curve: six rows of counts and shares by threshold."""
    from tensorboard.plugins.pr_curve.plugin_data_pb2 import PrCurvePluginData

    data = PrCurvePluginData(version=0, num_thresholds=thresholds).SerializeToString()
    return tensor(tag, np.asarray(rows, dtype=np.float32), "pr_curves", data)


def curve_rows(labels: Any, predictions: Any, thresholds: int = 127, weights: Any = None) -> Any:
    """True and false positives and negatives, precision and recall, by threshold."""
    labels, predictions = array_of(labels).reshape(-1), array_of(predictions).reshape(-1)
    weights = np.ones(len(labels)) if weights is None else array_of(weights).reshape(-1)
    thresholds = min(thresholds, 127)
    buckets = np.floor(predictions * (thresholds - 1)).astype(np.int64)
    counted = labels.astype(np.float64)
    span = (0, thresholds - 1)
    hits, _ = np.histogram(buckets, bins=thresholds, range=span, weights=counted * weights)
    misses, _ = np.histogram(buckets, bins=thresholds, range=span, weights=(1 - counted) * weights)
    tp, fp = np.cumsum(hits[::-1])[::-1], np.cumsum(misses[::-1])[::-1]
    tn, fn = fp[0] - fp, tp[0] - tp
    precision = tp / np.maximum(1e-7, tp + fp)
    recall = tp / np.maximum(1e-7, tp + fn)
    return np.stack([tp, fp, tn, fn, precision, recall])

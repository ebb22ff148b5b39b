"""`SummaryWriter`: files of events that TensorBoard shows."""

from __future__ import annotations

import os
import socket
import time
from datetime import datetime
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.summary.writer.event_file_writer import EventFileWriter

import flambeau as torch
from flambeau.ir.failure import failure
from flambeau.utils.tensorboard import summary

__all__ = ["FileWriter", "SummaryWriter"]


class FileWriter:
    """Writes events into one file.

    Args:
        log_dir: the folder.
        max_queue: events that wait to be written.
        flush_secs: seconds between writes.
        filename_suffix: of the file's name.
    """

    def __init__(
        self, log_dir: Any, max_queue: int = 10, flush_secs: float = 120, filename_suffix: str = ""
    ) -> None:
        log_dir = str(log_dir)
        self.event_writer = EventFileWriter(log_dir, max_queue, flush_secs, filename_suffix)

    def get_logdir(self) -> str:
        """The folder."""
        return str(self.event_writer.get_logdir())

    def add_event(self, event: Any, step: Any = None, walltime: float | None = None) -> None:
        """Adds an event of some step."""
        event.wall_time = time.time() if walltime is None else walltime
        if step is not None:
            event.step = int(step)
        self.event_writer.add_event(event)

    def add_summary(
        self, message: Any, global_step: Any = None, walltime: float | None = None
    ) -> None:
        """Adds what one call of `SummaryWriter` makes."""
        self.add_event(Event(summary=message), global_step, walltime)

    def flush(self) -> None:
        """Writes what waits."""
        self.event_writer.flush()

    def close(self) -> None:
        """Writes what waits and closes the file."""
        self.event_writer.close()

    def reopen(self) -> None:
        """Opens a closed file again."""
        self.event_writer.reopen()


class SummaryWriter:
    """Writes numbers, images, texts and more, by tag and step.

    Args:
        log_dir: the folder; `runs/<date>_<host><comment>` when None.
        comment: end of that folder's name.
        purge_step: what was written from this step on is hidden: a run continues from there.
        max_queue, flush_secs, filename_suffix: of `FileWriter`.
    """

    def __init__(
        self,
        log_dir: Any = None,
        comment: str = "",
        purge_step: int | None = None,
        max_queue: int = 10,
        flush_secs: float = 120,
        filename_suffix: str = "",
    ) -> None:
        if not log_dir:
            date = datetime.now().strftime("%b%d_%H-%M-%S")
            log_dir = os.path.join("runs", f"{date}_{socket.gethostname()}{comment}")
        self.log_dir = str(log_dir)
        self.purge_step = purge_step
        self._options = (max_queue, flush_secs, filename_suffix)
        self.file_writer: FileWriter | None = None
        self.all_writers: dict[str, FileWriter] | None = None
        self._layouts: dict[str, Any] = {}
        self._get_file_writer()

    def _get_file_writer(self) -> FileWriter:
        if self.file_writer is None:
            self.file_writer = FileWriter(self.log_dir, *self._options)
            self.all_writers = {self.file_writer.get_logdir(): self.file_writer}
            if self.purge_step is not None:
                step, self.purge_step = self.purge_step, None
                self.file_writer.add_event(Event(step=step, file_version="brain.Event:2"))
                start = SessionLog(status=SessionLog.START)
                self.file_writer.add_event(Event(step=step, session_log=start))
        return self.file_writer

    def _add(self, message: Any, step: Any, walltime: float | None) -> None:
        self._get_file_writer().add_summary(message, step, walltime)

    def get_logdir(self) -> str:
        """The folder."""
        return self.log_dir

    # ------------------------------------------------------------------ numbers
    def add_scalar(
        self,
        tag: str,
        scalar_value: Any,
        global_step: Any = None,
        walltime: float | None = None,
        new_style: bool = False,
        double_precision: bool = False,
    ) -> None:
        """Adds a number."""
        message = summary.scalar(tag, scalar_value, new_style, double_precision)
        self._add(message, global_step, walltime)

    def add_scalars(
        self,
        main_tag: str,
        tag_scalar_dict: dict[str, Any],
        global_step: Any = None,
        walltime: float | None = None,
    ) -> None:
        """Adds numbers that are drawn in one chart; each has a folder of its own."""
        base = self._get_file_writer().get_logdir()
        assert self.all_writers is not None
        for tag, value in tag_scalar_dict.items():
            folder = f"{base}/{main_tag.replace('/', '_')}_{tag}"
            if folder not in self.all_writers:
                self.all_writers[folder] = FileWriter(folder, *self._options)
            message = summary.scalar(main_tag, value)
            self.all_writers[folder].add_summary(message, global_step, walltime)

    def add_tensor(
        self, tag: str, tensor: Any, global_step: Any = None, walltime: float | None = None
    ) -> None:
        """Adds an array."""
        self._add(summary.tensor(tag, tensor), global_step, walltime)

    def add_histogram(
        self,
        tag: str,
        values: Any,
        global_step: Any = None,
        bins: Any = "tensorflow",
        walltime: float | None = None,
        max_bins: int | None = None,
    ) -> None:
        """Adds how values are distributed.

        Args:
            bins: limits, or a method of `numpy.histogram`, or "tensorflow".
            max_bins: at most so many.
        """
        self._add(summary.histogram(tag, values, bins, max_bins), global_step, walltime)

    def add_histogram_raw(
        self,
        tag: str,
        min: Any,  # noqa: A002
        max: Any,  # noqa: A002
        num: Any,
        sum: Any,  # noqa: A002
        sum_squares: Any,
        bucket_limits: Any,
        bucket_counts: Any,
        global_step: Any = None,
        walltime: float | None = None,
    ) -> None:
        """Adds a histogram that is counted already.

        Raises:
            ValueError: other numbers of limits than of counts.
        """
        if len(bucket_limits) != len(bucket_counts):
            raise ValueError("len(bucket_limits) != len(bucket_counts), see the document.")
        message = summary.histogram_raw(
            tag, min, max, num, sum, sum_squares, bucket_limits, bucket_counts
        )
        self._add(message, global_step, walltime)

    def add_pr_curve(
        self,
        tag: str,
        labels: Any,
        predictions: Any,
        global_step: Any = None,
        num_thresholds: int = 127,
        weights: Any = None,
        walltime: float | None = None,
    ) -> None:
        """Adds a precision-recall curve of labels and predicted probabilities."""
        rows = summary.curve_rows(labels, predictions, num_thresholds, weights)
        self._add(summary.curve(tag, rows, rows.shape[1]), global_step, walltime)

    def add_pr_curve_raw(
        self,
        tag: str,
        true_positive_counts: Any,
        false_positive_counts: Any,
        true_negative_counts: Any,
        false_negative_counts: Any,
        precision: Any,
        recall: Any,
        global_step: Any = None,
        num_thresholds: int = 127,
        weights: Any = None,
        walltime: float | None = None,
    ) -> None:
        """Adds a precision-recall curve that is counted already."""
        counts = (true_positive_counts, false_positive_counts, true_negative_counts,
                  false_negative_counts, precision, recall)  # fmt: skip
        rows = [summary.array_of(row) for row in counts]
        self._add(summary.curve(tag, rows, min(num_thresholds, 127)), global_step, walltime)

    # ------------------------------------------------------------------ pictures and sounds
    def add_image(
        self,
        tag: str,
        img_tensor: Any,
        global_step: Any = None,
        walltime: float | None = None,
        dataformats: str = "CHW",
    ) -> None:
        """Adds an image: bytes, or numbers from 0 to 1."""
        self._add(summary.image(tag, img_tensor, dataformats), global_step, walltime)

    def add_images(
        self,
        tag: str,
        img_tensor: Any,
        global_step: Any = None,
        walltime: float | None = None,
        dataformats: str = "NCHW",
    ) -> None:
        """Adds a batch of images as one grid."""
        self._add(summary.image(tag, img_tensor, dataformats), global_step, walltime)

    def add_image_with_boxes(
        self,
        tag: str,
        img_tensor: Any,
        box_tensor: Any,
        global_step: Any = None,
        walltime: float | None = None,
        rescale: float = 1,
        dataformats: str = "CHW",
        labels: Any = None,
    ) -> None:
        """Adds an image with boxes (x0, y0, x1, y1)."""
        names = [labels] if isinstance(labels, str) else labels
        message = summary.image(tag, img_tensor, dataformats, rescale, box_tensor, names)
        self._add(message, global_step, walltime)

    def add_figure(
        self,
        tag: str,
        figure: Any,
        global_step: Any = None,
        close: bool = True,
        walltime: float | None = None,
    ) -> None:
        """Adds figures of matplotlib."""
        import numpy as np

        figures = figure if isinstance(figure, (list, tuple)) else [figure]
        pictures = []
        for each in figures:
            each.canvas.draw()
            pictures.append(np.asarray(each.canvas.buffer_rgba())[..., :3])
            if close:
                import matplotlib.pyplot as plt

                plt.close(each)
        if isinstance(figure, (list, tuple)):
            self.add_images(tag, np.stack(pictures), global_step, walltime, "NHWC")
        else:
            self.add_image(tag, pictures[0], global_step, walltime, "HWC")

    def add_video(
        self,
        tag: str,
        vid_tensor: Any,
        global_step: Any = None,
        fps: float = 4,
        walltime: float | None = None,
    ) -> None:
        """Adds frames of shape (N, T, C, H, W)."""
        self._add(summary.video(tag, vid_tensor, fps), global_step, walltime)

    def add_audio(
        self,
        tag: str,
        snd_tensor: Any,
        global_step: Any = None,
        sample_rate: int = 44100,
        walltime: float | None = None,
    ) -> None:
        """Adds samples from -1 to 1."""
        self._add(summary.audio(tag, snd_tensor, sample_rate), global_step, walltime)

    # ------------------------------------------------------------------ texts and structures
    def add_text(
        self, tag: str, text_string: str, global_step: Any = None, walltime: float | None = None
    ) -> None:
        """Adds a text (Markdown)."""
        self._add(summary.text(tag, text_string), global_step, walltime)

    def add_onnx_graph(self, prototxt: Any) -> None:
        """Adds a graph of ONNX; not supported."""
        problem = "graphs of ONNX are not supported"
        raise failure(NotImplementedError, "add_onnx_graph", problem, "torch.fx prints graphs")

    def add_graph(
        self,
        model: Any,
        input_to_model: Any = None,
        verbose: bool = False,
        use_strict_trace: bool = True,
    ) -> None:
        """Adds the graph of a module; not supported."""
        raise NotImplementedError(
            "[add_graph] graphs of modules are not written\n"
            "hint: add_text with the code of torch.fx.symbolic_trace(model)"
        )

    def add_embedding(
        self,
        mat: Any,
        metadata: Any = None,
        label_img: Any = None,
        global_step: Any = None,
        tag: str = "default",
        metadata_header: Any = None,
    ) -> None:
        """Adds points (rows of a matrix), with labels.

        Args:
            mat: the points.
            metadata: a label per point, or a tuple of them.
            label_img: not supported: images of points.
            global_step: of the points.
            tag: of the points.
            metadata_header: names of the labels.
        """
        if label_img is not None:
            problem = "images of points are not written"
            raise failure(NotImplementedError, "add_embedding", problem, "pass metadata")
        points = summary.array_of(mat)
        step = f"{0 if global_step is None else int(global_step):05d}"
        folder = os.path.join(step, tag.replace("/", "%2F"))
        path = os.path.join(self.log_dir, folder)
        os.makedirs(path, exist_ok=True)
        lines = [f"embeddings {{\n  tensor_name: \"{tag}:{step}\"\n  tensor_path: "
                 f"\"{folder}/tensors.tsv\"\n"]  # fmt: skip
        if metadata is not None:
            if len(metadata) != len(points):
                raise AssertionError("#labels should equal with #data points")
            rows = [metadata_header] if metadata_header else []
            rows += [row if metadata_header else [row] for row in metadata]
            with open(os.path.join(path, "metadata.tsv"), "w", encoding="utf-8") as file:
                file.writelines("\t".join(map(str, row)) + "\n" for row in rows)
            lines.append(f'  metadata_path: "{folder}/metadata.tsv"\n')
        with open(os.path.join(path, "tensors.tsv"), "w") as file:
            file.writelines("\t".join(map(str, row)) + "\n" for row in points.tolist())
        with open(os.path.join(self.log_dir, "projector_config.pbtxt"), "a") as file:
            file.write("".join(lines) + "}\n")

    def add_custom_scalars(self, layout: dict[str, dict[str, Any]]) -> None:
        """Arranges charts: category to title to ("Multiline" or "Margin", tags)."""
        from tensorboard.plugins.custom_scalar import layout_pb2

        categories = []
        for category, charts in layout.items():
            messages = []
            for title, (kind, tags) in charts.items():
                if kind == "Margin":
                    value, lower, upper = tags
                    series = layout_pb2.MarginChartContent.Series(
                        value=value, lower=lower, upper=upper
                    )
                    content = layout_pb2.MarginChartContent(series=[series])
                    messages.append(layout_pb2.Chart(title=title, margin=content))
                else:
                    content = layout_pb2.MultilineChartContent(
                        tag=[rf"^{tag}$" if "/" in tag else tag for tag in tags]
                    )
                    messages.append(layout_pb2.Chart(title=title, multiline=content))
            categories.append(layout_pb2.Category(title=category, chart=messages))
        content = layout_pb2.Layout(category=categories).SerializeToString()
        message = _text_for_plugin("custom_scalars__config__", "custom_scalars", content)
        self._add(message, None, None)

    def add_custom_scalars_multilinechart(
        self, tags: Any, category: str = "default", title: str = "untitled"
    ) -> None:
        """Arranges one chart of several tags."""
        self.add_custom_scalars({category: {title: ["Multiline", tags]}})

    def add_custom_scalars_marginchart(
        self, tags: Any, category: str = "default", title: str = "untitled"
    ) -> None:
        """Arranges one chart of a tag between two others.

        Raises:
            AssertionError: not three tags.
        """
        if len(tags) != 3:
            raise AssertionError(f"Expected 3 tags, got {len(tags)}.")
        self.add_custom_scalars({category: {title: ["Margin", tags]}})

    def add_mesh(
        self,
        tag: str,
        vertices: Any,
        colors: Any = None,
        faces: Any = None,
        config_dict: Any = None,
        global_step: Any = None,
        walltime: float | None = None,
    ) -> None:
        """Adds a mesh, or a cloud of points."""
        import json

        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.plugins.mesh import metadata
        from tensorboard.plugins.mesh.plugin_data_pb2 import MeshPluginData as Data

        parts = ((vertices, Data.VERTEX), (faces, Data.FACE), (colors, Data.COLOR))
        present = [(summary.array_of(part), kind) for part, kind in parts if part is not None]
        bits = metadata.get_components_bitmask([kind for _, kind in present])
        values = []
        for array, kind in present:
            name = metadata.get_instance_name(tag, kind)
            data = metadata.create_summary_metadata(
                tag, tag, kind, bits, list(array.shape), json_config=json.dumps(config_dict or {})
            )
            message = summary.tensor(name, array).value[0]
            message.metadata.CopyFrom(data)
            values.append(message)
        self._add(Summary(value=values), global_step, walltime)

    def add_hparams(
        self,
        hparam_dict: dict[str, Any],
        metric_dict: dict[str, Any],
        hparam_domain_discrete: dict[str, list[Any]] | None = None,
        run_name: str | None = None,
        global_step: Any = None,
    ) -> None:
        """Adds a run's settings with its results, in a folder of its own.

        Raises:
            TypeError: no dicts.
        """
        if not isinstance(hparam_dict, dict) or not isinstance(metric_dict, dict):
            raise TypeError("hparam_dict and metric_dict should be dictionary.")
        folder = os.path.join(self.log_dir, run_name or str(time.time()))
        with SummaryWriter(folder) as writer:
            for message in _hparams(hparam_dict, metric_dict, hparam_domain_discrete or {}):
                writer._add(message, None, None)
            for name, value in metric_dict.items():
                writer.add_scalar(name, value, global_step)

    # ------------------------------------------------------------------ the end
    def flush(self) -> None:
        """Writes what waits."""
        for writer in (self.all_writers or {}).values():
            writer.flush()

    def close(self) -> None:
        """Writes what waits and closes the files."""
        for writer in (self.all_writers or {}).values():
            writer.flush()
            writer.close()
        self.file_writer = self.all_writers = None

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _text_for_plugin(tag: str, plugin: str, content: bytes) -> Any:
    from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto

    data = SummaryMetadata.PluginData(plugin_name=plugin)
    message = TensorProto(dtype=7, string_val=[content], tensor_shape=TensorShapeProto())
    metadata = SummaryMetadata(plugin_data=data)
    return Summary(value=[Summary.Value(tag=tag, tensor=message, metadata=metadata)])


def _hparams(
    settings: dict[str, Any], metrics: dict[str, Any], domains: dict[str, Any]
) -> list[Any]:
    """The experiment's description, the run's settings, and its end."""
    from google.protobuf import struct_pb2
    from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
    from tensorboard.plugins.hparams import api_pb2, metadata
    from tensorboard.plugins.hparams.plugin_data_pb2 import (
        HParamsPluginData,
        SessionEndInfo,
        SessionStartInfo,
    )

    start = SessionStartInfo()
    infos = []
    for name, value in settings.items():
        if value is None:
            continue
        if isinstance(value, torch.Tensor):
            value = value.item()
        kind, field = _kind_of(value)
        setattr(start.hparams[name], field, value)
        choices = domains.get(name)
        domain = None
        if choices is not None:
            domain = struct_pb2.ListValue(
                values=[struct_pb2.Value(**{_kind_of(each)[1]: each}) for each in choices]
            )
        infos.append(
            api_pb2.HParamInfo(name=name, type=api_pb2.DataType.Value(kind), domain_discrete=domain)
        )
    names = [api_pb2.MetricInfo(name=api_pb2.MetricName(tag=name)) for name in metrics]
    experiment = api_pb2.Experiment(hparam_infos=infos, metric_infos=names)
    end = SessionEndInfo(status=api_pb2.Status.Value("STATUS_SUCCESS"))
    contents = (
        (metadata.EXPERIMENT_TAG, HParamsPluginData(experiment=experiment)),
        (metadata.SESSION_START_INFO_TAG, HParamsPluginData(session_start_info=start)),
        (metadata.SESSION_END_INFO_TAG, HParamsPluginData(session_end_info=end)),
    )
    messages = []
    for tag, content in contents:
        content.version = metadata.PLUGIN_DATA_VERSION
        data = SummaryMetadata.PluginData(
            plugin_name=metadata.PLUGIN_NAME, content=content.SerializeToString()
        )
        value = Summary.Value(tag=tag, metadata=SummaryMetadata(plugin_data=data))
        messages.append(Summary(value=[value]))
    return messages


def _kind_of(value: Any) -> tuple[str, str]:
    """Names of a value's type in TensorBoard's messages.

    Raises:
        ValueError: another type.
    """
    if isinstance(value, bool):
        return "DATA_TYPE_BOOL", "bool_value"
    if isinstance(value, (int, float)):
        return "DATA_TYPE_FLOAT64", "number_value"
    if isinstance(value, str):
        return "DATA_TYPE_STRING", "string_value"
    raise ValueError("value should be one of int, float, str, bool, or torch.Tensor")

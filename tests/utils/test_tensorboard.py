"""`torch.utils.tensorboard`: files of events, read back by the package `tensorboard`."""

import subprocess
import sys

import pytest

import flambeau as torch


def test_without_the_package():
    code = (
        "import sys\n"
        "sys.modules['tensorboard'] = None\n"
        "try:\n"
        "    import flambeau.utils.tensorboard\n"
        "except ImportError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "tensorboard" in done.stdout and "pip install" in done.stdout


@pytest.fixture
def api():
    pytest.importorskip("tensorboard", reason="the package tensorboard is not installed")
    from flambeau.utils import tensorboard

    return tensorboard


def read(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder), size_guidance={"tensors": 0})
    events.Reload()
    return events


def test_numbers_and_distributions(api, tmp_path):
    with api.SummaryWriter(tmp_path) as writer:
        for step in range(3):
            writer.add_scalar("loss", torch.tensor(1.0 / (step + 1)), step)
        writer.add_scalar("new", 2.5, 7, new_style=True)
        writer.add_scalars("both", {"a": 1.0, "b": 2.0}, 4)
        writer.add_histogram("weights", torch.arange(10.0), 1)
        writer.add_histogram("bf16", torch.ones(4, dtype=torch.bfloat16), 1, bins="auto")
        writer.add_histogram_raw("raw", 0, 3, 4, 6, 14, [1, 2, 3], [1, 1, 2])
        with pytest.raises(AssertionError):
            writer.add_scalar("two", torch.ones(2))
    events = read(tmp_path)
    assert [(e.step, round(e.value, 3)) for e in events.Scalars("loss")] == [
        (0, 1.0), (1, 0.5), (2, 0.333),
    ]  # fmt: skip
    histogram = events.Histograms("weights")[0].histogram_value
    assert histogram.num == 10 and sum(histogram.bucket) == 10 and histogram.sum == 45
    assert len(histogram.bucket) == len(histogram.bucket_limit)
    assert events.Histograms("raw")[0].histogram_value.sum_squares == 14
    assert read(tmp_path / "both_b").Scalars("both")[0].value == 2.0
    assert "new" in events.Tags()["tensors"]


def test_pictures_sounds_and_texts(api, tmp_path):
    with api.SummaryWriter(tmp_path) as writer:
        writer.add_image("one", torch.rand(3, 4, 5), 0)
        writer.add_image("grey", torch.rand(4, 5), 0, dataformats="HW")
        writer.add_images("grid", torch.rand(10, 3, 4, 5), 0)
        writer.add_image_with_boxes("boxes", torch.rand(3, 9, 9), torch.tensor([[1, 1, 5, 5]]))
        writer.add_video("film", torch.rand(1, 3, 3, 4, 4))
        writer.add_audio("sound", torch.zeros(1, 100), sample_rate=8000)
        writer.add_text("note", "hello", 3)
        writer.add_tensor("numbers", torch.arange(3), 1)
    events = read(tmp_path)
    sizes = {tag: (events.Images(tag)[0].height, events.Images(tag)[0].width) for tag in
             ("one", "grey", "grid")}  # fmt: skip
    assert sizes == {"one": (4, 5), "grey": (4, 5), "grid": (8, 40)}
    assert events.Audio("sound")[0].sample_rate == 8000
    text = events.Tensors("note/text_summary")[0].tensor_proto
    assert list(text.string_val) == [b"hello"]


def test_curves_layouts_meshes_and_settings(api, tmp_path):
    labels, predictions = torch.tensor([0, 1, 1, 0]), torch.tensor([0.1, 0.9, 0.4, 0.6])
    with api.SummaryWriter(tmp_path, purge_step=2) as writer:
        writer.add_pr_curve("curve", labels, predictions, 0)
        writer.add_custom_scalars({"c": {"t": ["Multiline", ["a", "b"]]}})
        writer.add_custom_scalars_marginchart(["v", "low", "high"])
        writer.add_mesh("mesh", torch.rand(1, 4, 3), faces=torch.zeros(1, 1, 3, dtype=torch.int32))
        writer.add_hparams({"lr": 0.1, "name": "x", "on": True}, {"acc": 0.5}, run_name="run")
        writer.add_embedding(torch.rand(3, 2), metadata=["a", "b", "c"], global_step=1)
        with pytest.raises(NotImplementedError, match="add_graph"):
            writer.add_graph(torch.nn.Linear(1, 1))
    tags = read(tmp_path).Tags()["tensors"]
    assert "curve" in tags and "custom_scalars__config__" in tags
    assert read(tmp_path / "run").Scalars("acc")[0].value == 0.5
    assert (tmp_path / "00001" / "default" / "metadata.tsv").read_text() == "a\nb\nc\n"

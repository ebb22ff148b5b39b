"""C++ programs that run packages without Python."""

from __future__ import annotations

import subprocess

import flambeau as torch
from flambeau import nn
from tests.standalone.programs import B, built, packaged, values

PROGRAM = """
#include <flambeau/package.h>

#include <cstdio>
#include <thread>

static void show(const flambeau::Array& array) {
  for (int64_t size : array.sizes) std::printf("%lld ", static_cast<long long>(size));
  for (int64_t k = 0; k < array.count(); ++k) std::printf("%a ", array.values<float>()[k]);
  std::printf("\\n");
}

static flambeau::Array rows(int64_t count) {
  std::vector<float> values;
  for (int64_t k = 0; k < count * 3; ++k) values.push_back(static_cast<float>(k) * 0.25f - 1);
  return flambeau::Array::of<float>({count, 3}, values);
}

int main(int, char** argv) {
  flambeau::Package model(argv[1], 2);
  for (const std::string& name : model.constant_names()) std::printf("%s ", name.c_str());
  std::printf("%s %s\\n", model.input_names()[0].c_str(), model.output_names()[0].c_str());
  for (int64_t count : {2, 5, 64}) show(model.run({rows(count)})[0]);
  std::vector<flambeau::Array> last(4);
  std::vector<std::thread> threads;
  for (size_t k = 0; k < last.size(); ++k) {
    threads.emplace_back([&, k] {
      for (int n = 0; n < 100; ++n) last[k] = model.run({rows(static_cast<int64_t>(k) + 1)})[0];
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const flambeau::Array& array : last) show(array);
  try {
    model.run({rows(65)});
  } catch (const std::runtime_error& error) {
    std::printf("%s\\n", error.what());
  }
  try {
    model.run({});
  } catch (const std::invalid_argument& error) {
    std::printf("%s\\n", error.what());
  }
  flambeau::Array turned = rows(4);
  turned.sizes = {3, 3};  // the first three columns of a matrix that is turned
  turned.strides = {1, 3};
  show(model.run({turned})[0]);
  model.update_constants({{"0.bias", flambeau::Array::of<float>({4}, {1, 2, 3, 4})}});
  model.set_threads(1);
  show(model.run({rows(2)})[0]);
  try {
    model.update_constants({{"bias", rows(1)}});
  } catch (const std::invalid_argument& error) {
    std::printf("%s\\n", error.what());
  }
  for (const std::string& path : {std::string(argv[0]), std::string("/nowhere")}) {
    try {
      flambeau::Package other(path);
    } catch (const std::runtime_error& error) {
      std::printf("refused\\n");
    }
  }
}
"""


def rows(count):
    return (torch.arange(count * 3.0) * 0.25 - 1).reshape(count, 3)


def shown(array):
    numbers = [f"{size} " for size in array.shape]
    return "".join(numbers + [f"{_plain(x)} " for x in array.flatten().tolist()]) + "\n"


def _plain(number):
    """A number as C's `%a` prints it."""
    mantissa, exponent = number.hex().split("p")
    mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
    return f"{mantissa}p{exponent}"


def test_a_program_runs_a_package(tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.GELU()).eval()
    path = tmp_path / "model.pt2"
    path.write_bytes(packaged(model, (values(2, 3),), ({0: B},)).getvalue())
    program = built(PROGRAM, tmp_path, "-fsanitize=address,undefined")
    result = subprocess.run(
        [str(program), str(path)], env={}, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    names = " ".join([*model.state_dict(), "input output_0"]) + "\n"
    with torch.no_grad():
        expected = names + "".join(shown(model(rows(n))) for n in (2, 5, 64, 1, 2, 3, 4))
        expected += (
            "[model] Guard failed: input.size()[0] <= 64\nhint: export with other dynamic_shapes\n"
        )
        expected += "[package] there are 0 arguments, expected 1\n"
        expected += shown(model(rows(3).T.contiguous()))
        model[0].bias.copy_(torch.arange(1.0, 5.0))
        expected += shown(model(rows(2)))
    expected += "[package] the model has no constant bias\nrefused\nrefused\n"
    assert result.stdout == expected
    needed = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=True)
    assert "python" not in needed.stdout


def test_a_damaged_package_ends_no_program(tmp_path):
    content = packaged(nn.Linear(3, 4), (values(2, 3),)).getvalue()
    program = built(
        """
#include <flambeau/package.h>
int main(int, char** argv) {
  try {
    flambeau::Package model(argv[1]);
    return 0;
  } catch (const std::runtime_error&) {
    return 3;
  }
}
""",
        tmp_path,
        "-fsanitize=address,undefined",
    )
    path = tmp_path / "model.pt2"
    directory = content.rindex(b"PK\x01\x02")
    for number in range(20):
        damaged = bytearray(content)
        damaged[directory + number] ^= 0x55
        path.write_bytes(bytes(damaged) if number % 3 else content[: len(content) - 7 * number - 1])
        assert subprocess.run([str(program), str(path)], check=False).returncode in (0, 3)

"""Installs specjax; the top-level packages run experiments from a checkout."""

import pathlib
import re

import setuptools

# Metrics of text; all others do without.
EVALUATION = ['rouge-score', 'sacrebleu']
# Reads the weights of GGUF files.
GGUF = ['gguf>=0.17']
# Fetches models by their names on the Hugging Face Hub.
HUB = ['huggingface_hub>=1.0']
# Writes files of TensorBoard.
TENSORBOARD = ['tensorboardX']

# The number stands in the package, which also runs where it is not installed.
INIT = pathlib.Path('specjax/__init__.py').read_text(encoding='utf-8')
VERSION = re.search(r"^__version__ = '(.+)'$", INIT, re.MULTILINE)[1]

setuptools.setup(
  name='specjax',
  version=VERSION,
  description='A modular JAX/Flax library for speculative decoding.',
  long_description=pathlib.Path('README.md').read_text(encoding='utf-8'),
  long_description_content_type='text/markdown',
  license='Apache-2.0',
  python_requires='>=3.11',
  # With this, an editable install puts this folder on the path. Without, it is
  # a hook, which Python asks too late if this folder is called `specjax` and is
  # in the current one: it is itself imported then, as a package without code.
  package_dir={'': '.'},
  packages=setuptools.find_packages(include=['specjax', 'specjax.*']),
  package_data={
    'specjax': [
      'py.typed',
      'families/*.jsonl',
      'families/*/*',
      'families/*/*/*',
    ]
  },
  install_requires=[
    'absl-py',  # Flags of experiments.
    'flax>=0.12.8',  # NNX modules and struct dataclasses.
    'jax>=0.10,<0.13',
    'jinja2>=3.1.6',  # Chat templates; before, its sandbox leaks.
    'matplotlib',  # Drawings of texts and trees, and plots of experiments.
    'ml-collections',  # Configs of experiments.
    'numpy',
    'optax',  # Training.
    'orbax-checkpoint',  # Resumable training checkpoints.
    'pandas',  # Tables of experiments.
    'safetensors',  # Weights that are shipped or exchanged.
    'scipy',  # HiGHS: the linear program that other rules are measured by.
    'tokenizers',  # Byte-level BPE.
    'tqdm',  # Progress of whatever takes long.
  ],
  extras_require={
    # Compilers for TPU and GPU, which need no such device.
    'accelerators': ['libtpu', 'jax-cuda12-plugin', 'jax-cuda12-pjrt'],
    'evaluation': EVALUATION,
    'gguf': GGUF,
    'hub': HUB,
    # What a change is checked with, beside tests.
    'lint': ['mypy>=2.4', 'ruff'],
    # The same file of weights in llama.cpp; it is compiled when installed.
    'llama-cpp': [*GGUF, 'llama-cpp-python>=0.3'],
    # Tasks of lm-evaluation-harness: python -m experiments.harness.
    'lm-eval': ['lm-eval>=0.4.13'],
    # The same weights in another implementation: some tests compare with it,
    # and so do configs/benchmark/peer.py and smollm2.py.
    'oracles': ['torch==2.13.0', 'transformers>=5'],
    'tensorboard': TENSORBOARD,
    'test': [
      *EVALUATION,
      *GGUF,
      *HUB,
      *TENSORBOARD,
      'pytest',
      'pytest-xdist',  # The suite compiles much; it halves on two cores.
    ],
  },
)

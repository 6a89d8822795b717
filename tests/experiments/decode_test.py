"""The quickstart, and prompts of one's own."""

import json
import pathlib
import sys

from absl import flags as absl_flags
import jax
import matplotlib.image
import numpy as np
import pytest

from experiments import main
from experiments.common import configs
from experiments.common import prompts
from experiments.common import results
from specjax import families
from specjax import models
from specjax import sampling as sampling_lib
from specjax.data import tokenizer as tokenizer_lib
from specjax.evaluation import likelihood
from specjax.models import adapters
from specjax.models import config as config_lib
from specjax.testing import toys

_CONFIGS = pathlib.Path(__file__).parents[2] / 'configs'


def _load(name, **fields):
  config = configs.load(str(_CONFIGS / f'{name}.py'))
  config.update(fields)
  return config


def _rows(config, workdir):
  main.run(config, workdir)
  return results.read(workdir)['rows']


@pytest.mark.slow
def test_quickstart(tmp_path, capsys, monkeypatch):
  monkeypatch.setattr(sys.stdout, 'isatty', lambda: True)
  config = _load(
    'quickstart',
    ways=('none', 'medium:4'),
    prompts_per_domain=1,
    max_new_tokens=16,
  )
  plain, speculative = _rows(config, tmp_path)
  assert plain['block_efficiency'] == 1 < speculative['block_efficiency'] <= 5
  assert len(speculative['acceptance']) == 4
  for name in ('acceptance', 'text'):
    assert matplotlib.image.imread(tmp_path / f'{name}.png').std() > 0
  printed = capsys.readouterr().out
  prompt = families.load().prompts[config.shown_prompt].prompt
  assert '\033[32m' in printed and prompt in printed
  assert 'block efficiency ± standard error' in printed
  shown = ''.join(text for text, _ in speculative['shown'])
  assert shown.startswith('def count_vowels')


def test_the_text_of_a_way_that_is_not_there_is_refused(tmp_path):
  with pytest.raises(ValueError, match=r"labelled 'medium:4'\.$"):
    main.run(_load('quickstart', ways=('none',)), tmp_path)


@pytest.mark.slow
def test_the_shown_prompt_is_the_one_that_the_rule_picks():
  """Of answers that end and repeat no four tokens, the target's likeliest."""
  family = families.load()
  prompts = [family.tokenizer.encode_prompt(e.prompt) for e in family.prompts]
  decoder = families.decoder(
    family, None, sampling=sampling_lib.Sampling(0.0), max_length=256
  )
  answers = [result.tokens for result in decoder.decode(prompts, 64)]
  pairs = [(p + a, len(p)) for p, a in zip(prompts, answers)]
  target = family.target
  said = likelihood.likelihood(target.functions, target.params, pairs)
  rates = np.array(said.nats) / said.num_tokens
  fine = [
    answer[-1] == family.tokenizer.end_id and not _repeats(answer)
    for answer in answers
  ]
  best = int(np.argmax(np.where(fine, rates, -np.inf)))
  assert best == _load('quickstart').shown_prompt


def _repeats(tokens, num=4):
  runs = [tuple(tokens[i : i + num]) for i in range(len(tokens) - num + 1)]
  return len(set(runs)) < len(runs)


@pytest.fixture(scope='module', name='toy')
def _toy(tmp_path_factory):
  folder = tmp_path_factory.mktemp('family')
  toys.write_family(folder, {'medium': 0.2, 'small': 0.3})
  return str(folder)


@pytest.mark.slow
def test_prompts_of_a_file_do_not_depend_on_the_batch(tmp_path, toy):
  path = tmp_path / 'mine.jsonl'
  path.write_text('{"prompt": "a b"}\n{"prompt": "what is it?"}\n')
  fields = {'family': toy, 'prompts_file': str(path), 'max_new_tokens': 6}
  alone = _rows(_load('decode', **fields), tmp_path / 'alone')
  both = _rows(_load('decode', **fields, batch_size=2), tmp_path / 'both')
  assert alone == both
  assert [row['domain'] for row in alone] == ['mine', 'mine']


@pytest.mark.slow
def test_a_prompt_that_is_too_long_is_reported_and_the_rest_decoded(
  tmp_path, capsys, toy
):
  """And who starts again goes on behind what is logged."""
  path = tmp_path / 'mine.jsonl'
  prompts = ['a b', 'c ' * 90, 'what is it?', 'd', 'e f']
  path.write_text(''.join(json.dumps({'prompt': p}) + '\n' for p in prompts))
  fields = {'family': toy, 'prompts_file': str(path), 'max_length': 48}
  fields |= {'max_new_tokens': 6}
  config = _load('decode', **fields, batch_size=2)
  rows = _rows(config, tmp_path / 'run')
  said = capsys.readouterr().out
  assert len(rows) == 4 and 'Prompt 1 is left out: it has' in said
  logged = tmp_path / 'run' / 'records.jsonl'
  lines = logged.read_text().splitlines(keepends=True)
  logged.write_text(''.join(lines[:2]))
  assert _rows(config, tmp_path / 'run') == rows
  assert '2 of 4 are done already' in capsys.readouterr().out
  with pytest.raises(ValueError, match='max_length=8 is too small for all'):
    main.run(_load('decode', **fields | {'max_length': 8}), tmp_path / 'none')


@pytest.mark.slow
def test_one_workdir_takes_every_arm_and_bandit(tmp_path, capsys, toy):
  asked = {'family': toy, 'prompt': 'what is it?', 'max_new_tokens': 4}
  for fields in (
    {'arms': ('medium:2x2/kseq',)},
    {'arms': ('prompt_lookup:4',), 'sampling': {'min_p': 0.1}},
    {'arms': ('small:2', 'none'), 'bandit': 'ucb1(beta=0.1)'},
  ):
    config = _load('decode', **asked, **fields)
    (row,) = _rows(config, tmp_path)
    assert row['response'] in capsys.readouterr().out


def test_prompts_come_from_one_place_and_arms_have_a_bandit(tmp_path):
  with pytest.raises(ValueError, match='one of prompt and prompts_file'):
    main.run(_load('decode'), tmp_path)
  config = _load('decode', prompt='x', arms=('none', 'small:2'))
  with pytest.raises(ValueError, match='bandit must say who chooses'):
    main.run(config, tmp_path)


@pytest.fixture(name='chatty')
def _chatty(tmp_path):
  """A folder of HuggingFace: a random model and a chat template."""
  tokenizer = tokenizer_lib.load(
    pathlib.Path(families.__file__).parent / 'mini'
  )
  config = config_lib.TransformerConfig(tokenizer.vocab_size, **toys.TINY)
  params = adapters.init_params(jax.random.key(0), config)
  functions = adapters.language_model(config)
  folder = tmp_path / 'chatty'
  models.save(models.Checkpoint(config, functions, params, tokenizer), folder)
  path = folder / 'tokenizer.json'  # Without one of the markers of specjax.
  path.write_text(path.read_text('utf-8').replace('<|pad|>', '<s>'), 'utf-8')
  text = json.dumps({'eos_token': '<|end|>', 'chat_template': _TEMPLATE})
  (folder / 'tokenizer_config.json').write_text(text)
  return folder


_TEMPLATE = (
  "{% for m in messages %}{{ m['role'] + ':' + m['content'] + '<|end|>' }}"
  '{% endfor %}'
)


def test_chat_and_system_say_how_prompts_are_written(chatty):
  def prompt(*flags):
    argv = ['main.py', '--config=configs/decode.py', '--workdir=runs', *flags]
    values = absl_flags.FlagValues()
    main.parsed([*argv, f'--config.family={chatty}'], values)
    tokenizer = prompts.load_family(values.config).tokenizer
    return tokenizer.decode(tokenizer.encode_prompt('why?'))

  assert prompt() == prompt('--config.chat=true') == 'user:why?'
  assert prompt('--config.chat=false') == 'why?'
  assert prompt('--config.system=Be brief.') == 'system:Be brief.user:why?'
  mini = _load('decode', chat=True)
  with pytest.raises(ValueError, match='chat needs a .* chat template'):
    prompts.load_family(mini)
  with pytest.raises(ValueError, match='system needs a chat template'):
    prompts.load_family(_load('decode', system='Be brief.'))


@pytest.mark.slow
def test_a_folder_of_huggingface_decodes_prompts_as_chat(chatty, tmp_path):
  fields = {'family': str(chatty), 'arms': ('prompt_lookup:2',)}
  fields |= {'prompt': 'what is it?', 'max_new_tokens': 8}
  said = [
    _rows(_load('decode', **fields, **own), tmp_path / 'run')[0]['response']
    for own in ({}, {'chat': False}, {'system': 'Be brief.'}, {'chat': True})
  ]
  assert said[0] == said[3] and len(set(said)) == 3

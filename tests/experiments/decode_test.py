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
from experiments.common import processes
from experiments.common import prompts
from specjax import families
from specjax import models
from specjax import sampling as sampling_lib
from specjax.data import tokenizer as tokenizer_lib
from specjax.evaluation import likelihood
from specjax.models import adapters
from specjax.models import config as config_lib
from specjax.testing import toys
from tests.experiments import toy


@pytest.mark.slow
def test_quickstart(tmp_path, family, capsys, monkeypatch):
  monkeypatch.setattr(sys.stdout, 'isatty', lambda: True)
  changes = {'methods': ('none', 'small:2'), 'shown_method': 'small:2'}
  changes |= {'shown_prompt': 1, 'prompts_per_domain': 2, 'repeats': 1}
  config = toy.config('quickstart', family, toy.SIZES | changes)
  plain, speculative = toy.run(config, tmp_path)
  assert plain['block_efficiency'] == 1 < speculative['block_efficiency'] <= 3
  assert len(speculative['acceptance']) == 2
  for name in ('acceptance', 'text'):
    assert matplotlib.image.imread(tmp_path / f'{name}.png').std() > 0
  printed = capsys.readouterr().out
  assert '\033[32m' in printed and toy.PROMPTS[1][1] in printed
  assert 'block efficiency ± standard error' in printed
  texts, origins = zip(*speculative['shown'])
  assert ''.join(texts) and 'accepted' in origins


def test_the_text_of_a_method_that_is_not_there_is_refused(tmp_path):
  config = toy.config('quickstart', None, {'methods': ('none',)})
  with pytest.raises(ValueError, match=r"with the label 'medium:4'\.$"):
    main.run(config, tmp_path)


@pytest.mark.slow
def test_the_shown_prompt_is_the_one_that_the_rule_picks():
  """Of answers that end and repeat no four tokens, the target's likeliest."""
  family = families.load()
  prompts = [family.tokenizer.encode_prompt(e.prompt) for e in family.prompts]
  decoder = families.decoder(
    family, None, sampling=sampling_lib.Sampling(0.0), max_length=256
  )
  answers = [result.tokens for result in decoder.decode(prompts, 64)]
  end = family.tokenizer.end_id
  fine = [
    number
    for number, answer in enumerate(answers)
    if answer[-1] == end and not _repeats(answer)
  ]
  texts = [(prompts[i] + answers[i], len(prompts[i])) for i in fine]
  model = family.target
  scores = likelihood.likelihood(model.model, model.params, texts)
  best = np.argmax(np.array(scores.nats) / scores.num_tokens)
  shown = toy.config('quickstart', None, {}).shown_prompt
  assert len(fine) > 1 and fine[best] == shown


def _repeats(tokens, num=4):
  runs = [tuple(tokens[i : i + num]) for i in range(len(tokens) - num + 1)]
  return len(set(runs)) < len(runs)


def _config(family, **fields):
  sizes = toy.SIZES | {'arms': ('small:2',)}
  return toy.config('decode', family, sizes | fields)


@pytest.mark.slow
def test_prompts_of_a_file_do_not_depend_on_the_batch(tmp_path, family):
  path = tmp_path / 'mine.jsonl'
  path.write_text('{"prompt": "a b"}\n{"prompt": "what is it?"}\n')
  alone, both = (
    toy.run(
      _config(family, prompts_file=str(path), batch_size=size),
      tmp_path / str(size),
    )
    for size in (1, 2)
  )
  assert alone == both
  assert [row['domain'] for row in alone] == ['mine', 'mine']


@pytest.mark.slow
def test_a_prompt_that_is_too_long_is_reported_and_the_rest_decoded(
  tmp_path, capsys, family
):
  """And who starts again goes on behind what is logged."""
  path = tmp_path / 'mine.jsonl'
  prompts = ['a b', 'c ' * 90, 'what is it?', 'd', 'e f']
  path.write_text(''.join(json.dumps({'prompt': p}) + '\n' for p in prompts))
  config = _config(family, prompts_file=str(path))
  rows = toy.run(config, tmp_path / 'run')
  said = capsys.readouterr().out
  assert len(rows) == 4
  assert f'Left out: {path}, line 2: prompts[1] has' in said
  again = toy.torn(tmp_path / 'run', tmp_path / 'again', 2)
  assert toy.run(config, again) == rows
  assert '2 of 4 are done already' in capsys.readouterr().out
  config.max_length = 8
  with pytest.raises(ValueError, match='no prompt .* exceeds max_length=8'):
    main.run(config, tmp_path / 'none')


@pytest.mark.slow
def test_bad_lines_are_reported_and_the_rest_is_decoded(
  tmp_path, capsys, family
):
  path = tmp_path / 'mine.jsonl'
  lines = [
    b'\xef\xbb\xbf{"prompt": "a b", "id": 1}\r',
    *(b'{"prompt": ""}', b'', b'  ', b'{"prompt": "\\ud83d"}', b'\0\0'),
    *(b'[' * 100_000, b'{"prompt": 3}', b'{"prompt": "\xe9"}', b'null'),
    b'{"prompt": "a b", "id": 1}',
  ]
  path.write_bytes(b'\n'.join(lines))
  config = _config(family, prompts_file=str(path))
  rows = toy.run(config, tmp_path / 'run')
  said = capsys.readouterr().out
  assert len(rows) == 2
  for number in (2, 5, 6, 7, 8, 9, 10):
    assert f'Left out: {path}, line {number}: ' in said
  assert said.count('Left out: ') == 7
  # Mended in place, they are decoded, and nothing else again.
  path.write_bytes(b'\n'.join([*lines[:9], b'{"prompt": "so"}', lines[-1]]))
  assert toy.run(config, tmp_path / 'run')[::2] == rows
  assert '2 of 3 are done already' in capsys.readouterr().out


@pytest.mark.slow
def test_processes_that_have_logged_less_set_what_is_left(
  tmp_path, monkeypatch, family
):
  """Whatever this process has logged; and its log stays as it is."""
  path = tmp_path / 'mine.jsonl'
  path.write_text(''.join(f'{{"prompt": "{text}"}}\n' for text in 'abcde'))
  config = _config(family, prompts_file=str(path))
  rows = toy.run(config, tmp_path / 'run')
  units = toy.units(tmp_path / 'run')
  common = lambda done, names: {n: done[n] for n in names[:1]}
  monkeypatch.setattr(processes, 'common', common)
  again = toy.torn(tmp_path / 'run', tmp_path / 'again', 3)
  assert toy.run(config, again) == rows
  assert toy.units(again) == units


@pytest.mark.parametrize(
  ('fields', 'sentence'),
  [
    ({'prompts_file': 'nothing.jsonl'}, 'Cannot read nothing.jsonl: No such'),
    ({'prompts_file': '/'}, 'Cannot read /: Is a directory'),
    ({'prompts_file': '/dev/null'}, 'no prompt .*: /dev/null has none'),
    ({'prompt': 'a \udce9'}, r"prompt must be Unicode text.*\('.udce9'\)"),
  ],
)
def test_prompts_that_cannot_be_read_end_in_a_sentence(
  fields, sentence, tmp_path, family
):
  with pytest.raises(ValueError, match=sentence):
    main.run(_config(family, **fields), tmp_path / 'run')
  assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_one_workdir_takes_every_arm_and_bandit(tmp_path, capsys, family):
  for fields in (
    {},
    {'arms': ('prompt_lookup:2',), 'sampling': {'min_p': 0.1}},
    {'arms': ('small:2', 'none'), 'bandit': 'ucb1(beta=0.1)'},
  ):
    config = _config(family, prompt='what is it?', **fields)
    (row,) = toy.run(config, tmp_path)
    assert row['response'] in capsys.readouterr().out


def test_prompts_come_from_one_place_and_arms_have_a_bandit(tmp_path):
  with pytest.raises(ValueError, match='one of prompt and prompts_file'):
    main.run(toy.config('decode', None, {}), tmp_path)
  config = _config(None, prompt='x', arms=('none', 'small:2'))
  with pytest.raises(ValueError, match='which selects among the 2 arms, got'):
    main.run(config, tmp_path)


@pytest.mark.parametrize(
  ('arms', 'bandit', 'place'),
  [
    (('small:4x',), '', 'config.arms[0]'),
    (('none', 'small:4x'), 'ucb1', 'config.arms[1]'),
  ],
)
def test_a_bad_arm_is_answered_with_its_place(
  family, tmp_path, arms, bandit, place
):
  config = _config(family, prompt='x', arms=arms, bandit=bandit)
  with pytest.raises(ValueError) as caught:
    main.run(config, tmp_path / 'run')
  assert str(caught.value).startswith(f"{place} 'small:4x': Unknown tree '4x'.")


@pytest.fixture(name='chatty')
def _chatty(tmp_path):
  """A folder of HuggingFace: a random model and a chat template."""
  tokenizer = tokenizer_lib.load(
    pathlib.Path(families.__file__).parent / 'mini'
  )
  config = config_lib.TransformerConfig(tokenizer.vocab_size, **toys.TINY)
  params = adapters.init_params(jax.random.key(0), config)
  model = adapters.language_model(config)
  folder = tmp_path / 'chatty'
  models.save(models.Checkpoint(config, model, params, tokenizer), folder)
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
    main.parse_flags([*argv, f'--config.family={chatty}'], values)
    tokenizer = prompts.load_family(values.config).tokenizer
    return tokenizer.decode(tokenizer.encode_prompt('why?'))

  assert prompt() == prompt('--config.chat=true') == 'user:why?'
  assert prompt('--config.chat=false') == 'why?'
  assert prompt('--config.system=Be brief.') == 'system:Be brief.user:why?'
  mini = _config(None, chat=True)
  with pytest.raises(ValueError, match='chat needs a .* chat template'):
    prompts.load_family(mini)
  with pytest.raises(ValueError, match='system needs a chat template'):
    prompts.load_family(_config(None, system='Be brief.'))


@pytest.mark.slow
def test_a_folder_of_huggingface_decodes_prompts_as_chat(chatty, tmp_path):
  fields = {'arms': ('prompt_lookup:2',), 'prompt': 'what is it?'}
  said = [
    toy.run(_config(chatty, **fields, **own), tmp_path / 'run')[0]['response']
    for own in ({}, {'chat': False}, {'system': 'Be brief.'}, {'chat': True})
  ]
  assert said[0] == said[3] and len(set(said)) == 3


@pytest.mark.slow
def test_two_folders_are_a_pair(chatty, family, tmp_path):
  """A target and drafters that are named on the command line."""
  fields = {'prompt': 'what is it?', 'sampling': {'temperature': 0.0}}
  fields['chat'] = False  # An untrained model repeats the end of a turn.
  named = {'drafters': f"{{'draft': {str(chatty)!r}}}", 'arms': ('draft:2',)}
  (plain,), (drafted,) = (
    toy.run(_config(chatty, **fields, **own), tmp_path / str(len(own)))
    for own in ({'arms': ('none',)}, named)
  )
  assert plain['response'] == drafted['response']
  assert drafted['block_efficiency'] > 2
  named['drafters'] = f"{{'draft': {str(family)!r}}}"
  other = _config(chatty, **fields, **named)
  with pytest.raises(ValueError, match="'draft' must share a tokenizer"):
    main.run(other, tmp_path / 'other')
  other.drafters = 'draft'
  with pytest.raises(ValueError, match='drafters must be a dictionary such as'):
    main.run(other, tmp_path / 'other')

"""The quickstart, and prompts of one's own."""

import json
import pathlib
import sys

from absl import flags as absl_flags
import jax
import matplotlib.image
import pytest

from experiments import main
from experiments.common import processes
from experiments.common import prompts
from specjax import families
from specjax import models
from specjax import sampling as sampling_lib
from specjax.data import tokenizer as tokenizer_lib
from specjax.models import adapters
from specjax.models import config as config_lib
from specjax.models import flax_modules
from specjax.testing import toys
from tests.experiments import toy


def test_quickstart(tmp_path, family, capsys, monkeypatch):
  monkeypatch.setattr(sys.stdout, 'isatty', lambda: True)
  changes = {'methods': ('none', 'small:2'), 'shown_method': 'small:2'}
  changes |= {'shown_prompt': 'a b a b', 'prompts_per_domain': 2, 'repeats': 1}
  config = toy.config('quickstart', family, toy.SIZES | changes)
  plain_row, speculative_row = toy.run(config, tmp_path)
  assert (
    plain_row['block_efficiency']
    == 1
    < speculative_row['block_efficiency']
    <= 3
  )
  for name in ('speed_up_here', 'speed_up_if_memory_bound'):
    assert plain_row[name] == 1 and plain_row[f'{name}_error'] == 0
    assert speculative_row[name] > 0
  sizes = [families.num_params(m) for m in _models(family)]
  cost = 1 + 2 * sizes[1] / sizes[0]
  bound = speculative_row['block_efficiency'] / cost
  assert speculative_row['speed_up_if_memory_bound'] == pytest.approx(
    bound, rel=0.1
  )
  assert len(speculative_row['acceptance']) == 2
  for name in ('acceptance', 'text'):
    assert matplotlib.image.imread(tmp_path / f'{name}.png').std() > 0
  output = capsys.readouterr().out
  assert '\033[32m' in output and '> a b a b' in output
  assert 'block efficiency ± standard error' in output
  ratio = speculative_row['target_call_ratio']
  assert f'for 3 tokens takes {ratio:.1f} times as long as' in output
  texts, origins = zip(*speculative_row['shown'])
  assert ''.join(texts) and 'accepted' in origins
  calls = speculative_row['shown_target_calls']
  assert f'{len(texts)} tokens in {calls} target calls' in output


def _models(family):
  """The target and the drafter `small`."""
  loaded = families.load(str(family))
  return loaded.target, loaded.drafters['small']


def test_the_text_of_a_method_that_is_not_there_is_refused(tmp_path):
  config = toy.config('quickstart', None, {'methods': ('none',)})
  with pytest.raises(ValueError, match=r"with the label 'medium:4'\.$"):
    main.run(config, tmp_path)


def test_the_shown_text_is_right():
  """The function is executed."""
  config = toy.config('quickstart', None, {})
  family = families.load()
  decoder = families.decoder(
    family, None, sampling=sampling_lib.Sampling(0.0), max_length=256
  )
  prompt = family.tokenizer.encode_prompt(config.shown_prompt)
  (answer,) = decoder.decode([prompt], config.max_new_tokens)
  assert answer.tokens[-1] == family.tokenizer.end_id
  names = {}
  exec(family.tokenizer.decode(answer.tokens), names)
  assert [names['factorial'](n) for n in range(6)] == [1, 1, 2, 6, 24, 120]


def _config(family, **fields):
  sizes = toy.SIZES | {'arms': ('small:2',)}
  return toy.config('decode', family, sizes | fields)


def test_prompts_of_a_file_do_not_depend_on_the_batch(tmp_path, family):
  path = tmp_path / 'mine.jsonl'
  path.write_text('{"prompt": "a b"}\n{"prompt": "what is it?"}\n')
  single_rows, batch_rows = (
    toy.run(
      _config(family, prompts_file=str(path), batch_size=size),
      tmp_path / str(size),
    )
    for size in (1, 2)
  )
  assert single_rows == batch_rows
  assert [row['domain'] for row in single_rows] == ['mine', 'mine']


def test_a_prompt_that_is_too_long_is_reported_and_the_rest_decoded(
  tmp_path, capsys, family
):
  """Also resumes a run after the logged prompts."""
  path = tmp_path / 'mine.jsonl'
  prompts = ['a b', 'c ' * 90, 'what is it?', 'd', 'e f']
  path.write_text(
    ''.join(json.dumps({'prompt': prompt}) + '\n' for prompt in prompts)
  )
  config = _config(family, prompts_file=str(path))
  rows = toy.run(config, tmp_path / 'run')
  output = capsys.readouterr().out
  assert len(rows) == 4
  assert f'Left out: {path}, line 2: prompts[1] has' in output
  torn_dir = toy.torn_workdir(tmp_path / 'run', tmp_path / 'again', 2)
  assert toy.run(config, torn_dir) == rows
  assert '2 of 4 are done already' in capsys.readouterr().out
  config.max_length = 8
  with pytest.raises(ValueError, match='no prompt .* exceeds max_length=8'):
    main.run(config, tmp_path / 'none')


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
  output = capsys.readouterr().out
  assert len(rows) == 2
  for number in (2, 5, 6, 7, 8, 9, 10):
    assert f'Left out: {path}, line {number}: ' in output
  assert output.count('Left out: ') == 7
  # A corrected line is decoded, but no other line is decoded again.
  path.write_bytes(b'\n'.join([*lines[:9], b'{"prompt": "so"}', lines[-1]]))
  assert toy.run(config, tmp_path / 'run')[::2] == rows
  assert '2 of 3 are done already' in capsys.readouterr().out


def test_processes_that_have_logged_less_set_what_is_left(
  tmp_path, monkeypatch, family
):
  """Uses the common part of the logs and keeps the log of this process."""
  path = tmp_path / 'mine.jsonl'
  path.write_text(''.join(f'{{"prompt": "{text}"}}\n' for text in 'abcde'))
  config = _config(family, prompts_file=str(path))
  rows = toy.run(config, tmp_path / 'run')
  units = toy.units(tmp_path / 'run')
  common = lambda outcomes, names: {name: outcomes[name] for name in names[:1]}
  monkeypatch.setattr(processes, 'common', common)
  torn_dir = toy.torn_workdir(tmp_path / 'run', tmp_path / 'again', 3)
  assert toy.run(config, torn_dir) == rows
  assert toy.units(torn_dir) == units


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
  with pytest.raises(ValueError) as error_info:
    main.run(config, tmp_path / 'run')
  assert str(error_info.value).startswith(
    f"{place} 'small:4x': Unknown tree '4x'."
  )


@pytest.fixture(name='chatty')
def _chatty(tmp_path):
  """A folder of HuggingFace: a random model and a chat template."""
  tokenizer = tokenizer_lib.load(
    pathlib.Path(families.__file__).parent / 'mini'
  )
  config = config_lib.TransformerConfig(tokenizer.vocab_size, **toys.TINY)
  params = flax_modules.init_params(jax.random.key(0), config)
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


def test_a_folder_of_huggingface_decodes_prompts_as_chat(chatty, tmp_path):
  fields = {'arms': ('prompt_lookup:2',), 'prompt': 'what is it?'}
  fields['sampling'] = {'temperature': 1.0}
  responses = [
    toy.run(_config(chatty, **fields, **changes), tmp_path / 'run')[0][
      'response'
    ]
    for changes in (
      {},
      {'chat': False},
      {'system': 'Be brief.'},
      {'chat': True},
    )
  ]
  assert responses[0] == responses[3] and len(set(responses)) == 3


def test_two_folders_are_a_pair(chatty, family, tmp_path):
  """Takes the target and the drafters from the command line."""
  fields = {'prompt': 'what is it?', 'sampling': {'temperature': 0.0}}
  fields['chat'] = False  # An untrained model repeats the end of a turn.
  draft_fields = {
    'drafters': f"{{'draft': {str(chatty)!r}}}",
    'arms': ('draft:2',),
  }
  (plain_row,), (draft_row,) = (
    toy.run(_config(chatty, **fields, **changes), tmp_path / str(len(changes)))
    for changes in ({'arms': ('none',)}, draft_fields)
  )
  assert plain_row['response'] == draft_row['response']
  assert draft_row['block_efficiency'] > 2
  draft_fields['drafters'] = f"{{'draft': {str(family)!r}}}"
  other_config = _config(chatty, **fields, **draft_fields)
  with pytest.raises(ValueError, match="'draft' must share a tokenizer"):
    main.run(other_config, tmp_path / 'other')
  other_config.drafters = 'draft'
  with pytest.raises(ValueError, match='drafters must be a dictionary such as'):
    main.run(other_config, tmp_path / 'other')

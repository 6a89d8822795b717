r"""MetaSD at the paper's scale: Vicuna 7B with five specialized drafters.

python -m experiments.main --config=configs/metasd/responses.py \
    --config.family=weights/vicuna_7b --config.data_dir=DATA \
    --workdir=runs/vicuna_responses
for name in code math qa summarization translation; do
  python -m experiments.main --config=configs/train/heads/specialist.py:$name \
      --config.family=weights/vicuna_7b --config.data_dir=DATA \
      --config.responses="('runs/vicuna_responses/responses.jsonl',)" \
      --config.heads.$name.start=weights/vicuna_7b_eagle \
      --workdir=runs/vicuna_heads/$name
done
python -m experiments.main --config=configs/metasd/vicuna_7b.py:heads \
    --config.data_dir=DATA --workdir=runs/metasd_vicuna

`:heads` is MetaEagle (Kim et al. 2026, Table 4), with heads of EAGLE-1;
`:chains`, MetaSpS (Table 3), has chains of five tokens from models of 68M
parameters, which configs/metasd/vicuna_68m.py trains. The paper trains both on
the target's responses.

DATA holds the eval files of the domains: code (MT-Bench), translation (WMT16,
German to English), summarization (CNN/DailyMail), qa (Natural Questions) and
math (GSM8K). An error lists the weights that are missing.
"""

from configs.metasd import drafters
from configs.metasd import heads
from specjax import registry

_TARGET = 'weights/vicuna_7b'
_HUB = 'https://huggingface.co'
_OTHERS = (*drafters.DOMAINS, 'eagle')
_VARIANTS = {
  'heads': {
    'get_config': heads.get_config,
    'folder': 'runs/vicuna_heads/{0}/{0}.safetensors',
    'source': 'the command in the first lines of this config',
    'general': 'weights/vicuna_7b_eagle',
    'general_source': f'{_HUB}/yuhuili/EAGLE-Vicuna-7B-v1.3',
  },
  'chains': {
    'get_config': drafters.get_config,
    'folder': 'runs/vicuna_drafters/{0}/{0}.safetensors',
    'source': 'configs/metasd/vicuna_68m.py',
    'general': 'runs/vicuna_drafters/all/all.safetensors',
    'general_source': 'configs/metasd/vicuna_68m.py:all',
  },
}

VARIANTS = tuple(_VARIANTS)
SMOKE = {'bandits': (drafters.UNIFORM,), 'repeats': 0}


def get_config(which='heads'):
  """Returns the config for 'heads' or 'chains'."""
  variant = registry.lookup(_VARIANTS, 'drafters', which)
  config = variant['get_config']()
  paths = {name: variant['folder'].format(name) for name in drafters.DOMAINS}
  general = 'eagle' if which == 'heads' else 'all'
  config.family = _TARGET
  config.drafters = paths | {general: variant['general']}
  config.sources = (
    (_TARGET, f'{_HUB}/lmsys/vicuna-7b-v1.3'),
    *((path, variant['source']) for path in paths.values()),
    (variant['general'], variant['general_source']),
  )
  config.prompts = {'in domain': {'domains': drafters.DOMAINS}}
  config.router = False
  config.prompts_per_domain = 80
  config.repeats = 3
  config.max_new_tokens, config.max_length = 512, 2048
  config.dtype = 'bfloat16'
  if which == 'heads':
    # The target has one published head, of EAGLE.
    config.methods = (heads.ALL,)
  config.paper = ()
  return config

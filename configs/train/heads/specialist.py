r"""Trains a head of SmolLM2 further, on the responses in one domain.

for name in code math qa summarization translation; do
  python -m experiments.main --config=configs/train/heads/specialist.py:$name \
      --config.data_dir=DATA --workdir=runs/specialist_heads/$name
done

All specialists are initialized with the head of configs/train/heads/eagle.py,
as in MetaEagle (Kim et al. 2026), and need its responses.
"""

from configs.train.heads import eagle

VARIANTS = ('code', 'math')  # Any domain is valid.


def get_config(domain='code'):
  config = eagle.get_config()
  config.domain = domain
  config.num_texts = {domain: 600}
  recipe, training = config.heads.eagle.recipe, config.heads.eagle.training
  config.heads = {
    domain: {'start': 'runs/eagle/eagle.safetensors', 'recipe': recipe}
  }
  config.training.update(training)
  return config

r"""Trains MetaSD's chain drafters for Vicuna 7B, each on one domain.

python -m experiments.main --config=configs/metasd/responses.py \
    --config.family=weights/vicuna_7b --config.data_dir=DATA \
    --workdir=runs/vicuna_responses
for name in all code math qa summarization translation; do
  python -m experiments.main --config=configs/metasd/vicuna_68m.py:$name \
      --workdir=runs/vicuna_drafters/$name
done

As in the paper (Kim et al. 2026, Appendix F.1), a Llama of 68M parameters, with
two layers of 768 and 12 heads, learns the tokens of the target's responses at
temperatures 0, 0.3, 0.7 and 1: 3 epochs with a batch size of 8, learning rate
2e-5, a cosine schedule, warm-up of 0.03 and no weight decay. `all` is trained
on all domains. A row of a batch may have several responses, and the schedule
ends at a tenth of the learning rate. `weights/vicuna_68m` is
https://huggingface.co/double7/vicuna-68m; the paper trained its own on C4 and
ShareGPT.
"""

from configs.metasd import specialist

VARIANTS = specialist.VARIANTS  # Any domain is valid.


def get_config(name='code'):
  config = specialist.get_config(name)
  config.tokenizer = 'weights/vicuna_7b'
  config.responses = ('runs/vicuna_responses/responses.npz',)
  config.distill_from = ''  # The loss is that of the responses' tokens.
  config.prompt_weight = 0.0
  config.models = {name: 'weights/vicuna_68m'}
  config.training = {
    'epochs': 3,
    'batch_size': 8,
    'learning_rate': 2e-5,
    'warmup': 0.03,
    'weight_decay': 0.0,
    'checkpoint_every': 500,
  }
  return config

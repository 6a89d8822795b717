"""The papers' central claims, and the results that they are judged by.

Verdicts follow from the numbers. Only the thresholds, the rows that are judged
and the explanations are written by hand.
"""

from experiments import verdicts

_SPECTR, _BANDIT, _META = 'SpecTr', 'BanditSpec', 'MetaSD'
_CASCADES, _THEORY, _HEDGE = 'Speculative cascades', 'Theory', 'HedgeSpec'
_UCB = 'ucb1, BD'
_AT_QUALITY = 'Cascades, Table 2, equal quality (ours by target_nats)'
_COSTLY_CALLS = (
  'a call with more tokens takes longer here than in the paper (SpecTr, '
  'Table 2, in spectr.md), so that drafts cost more than they save'
)
_CLOSE_HEADS = (
  'the specialized heads are close to each other: the row `oracle`, which '
  'decodes each prompt with its best head, shows the headroom'
)

CLAIMS = (
  verdicts.Claim(
    _SPECTR,
    'With k-Seq, eight drafts of four tokens emit 1.3 times as many tokens per '
    'round as one draft',
    'spectr/decode-smollm2',
    {'claim': '8 drafts of 4 over 1, drafter of 6M'},
    'measured',
    low=1.3,
    explanation='k-Seq accepts fewer tokens than the optimum, as the next '
    'line shows',
  ),
  verdicts.Claim(
    _SPECTR,
    'With optimal transport, eight drafts of four tokens emit 1.3 times as '
    'many tokens per round as one draft',
    'spectr/decode-smollm2',
    {'claim': '8 drafts of 4 over 1, otm'},
    'measured',
    low=1.3,
  ),
  verdicts.Claim(
    _SPECTR,
    'Eight drafts of eight tokens are faster than one, in tokens per second',
    'spectr/speed-smollm2',
    {'claim': '8 drafts of 8 over 1, tokens per second'},
    'measured',
    low=1.0,
    explanation=_COSTLY_CALLS,
  ),
  verdicts.Claim(
    _THEORY,
    'Rejections equal those of Theorem 1 in every domain (deviation in '
    'standard errors)',
    'theory/diagnose-smollm2',
    {},
    'deviation',
    low=-3.0,
    high=3.0,
  ),
  verdicts.Claim(
    _THEORY,
    'OPT has no more bias than UNO at equal rejections, at every epsilon',
    'theory/ledger-smollm2',
    {'rule': 'UNO'},
    'over_best',
    low=-1e-4,  # Tolerates rounding errors.
  ),
  verdicts.Claim(
    _THEORY,
    'Responses of OPT are as likely as those of UNO (difference in nats per '
    'token)',
    'theory/winrate-smollm2',
    {'method': 'OPT', 'against': 'UNO', 'judge': 'likelihood'},
    'gap',
    low=0.0,
    explanation='where few drafts are replaced, the rules differ by less '
    'than the noise of responses; the line above has their exact difference',
  ),
  verdicts.Claim(
    _THEORY,
    'The draft length and number of drafts that theory selects are the fastest '
    '(speed over that of the fastest)',
    'theory/practice-smollm2',
    {},
    'worth',
    low=0.95,
  ),
  verdicts.Claim(
    _BANDIT,
    'On a mix of domains, UCBSpec emits more tokens per round than the best '
    'single drafter',
    'banditspec/heads',
    {'method': 'ucb_spec', 'domain': 'all'},
    'over_best',
    low=1.0,
    paper=3.98 / 3.94,  # Table 1, over Eagle-2, on Spec-Bench.
    explanation='it starts anew with every prompt, and an answer has few '
    'rounds for exploring four arms (the longer the answer, the more a '
    'bandit gains: `metasd/answers`); `hedge`, which learns from all arms '
    'in every round, emits more',
  ),
  verdicts.Claim(
    _BANDIT,
    'UCBSpec reaches at least 0.9 of the tokens per second of the best draft '
    'length, at batch sizes 1, 4 and 8',
    'banditspec/lengths-heads',
    {'part': 'all batches', 'method': 'ucb_spec'},
    'over_best',
    low=0.9,
    explanation='with more rows, a length that does not pay costs more, and'
    ' UCBSpec explores all lengths for long (`mean_length`); '
    '`ucb1(beta=0.1)`, which explores less, is faster',
  ),
  verdicts.Claim(
    _HEDGE,
    'NormalHedge, which learns from all drafts, emits more tokens per round '
    'than UCBSpec',
    'banditspec/experts-heads',
    {
      'claim': 'normal_hedge over ucb_spec, all',
      'source': 'HedgeSpec, block efficiency',
    },
    'measured',
    low=1.0,
    explanation=f'{_CLOSE_HEADS}; with the seven specialists of mini, which '
    'are not close, it holds, as the next line shows',
  ),
  verdicts.Claim(
    _HEDGE,
    'With seven specialists of mini, NormalHedge emits more tokens per round '
    'than UCBSpec',
    'banditspec/experts',
    {
      'claim': 'normal_hedge over ucb_spec, all',
      'source': 'HedgeSpec, block efficiency',
    },
    'measured',
    low=1.0,
  ),
  verdicts.Claim(
    _HEDGE,
    'NormalHedge is faster than UCBSpec, with the measured costs of all '
    "drafters' calls",
    'banditspec/experts-heads',
    {
      'claim': 'normal_hedge over ucb_spec, all',
      'source': 'HedgeSpec, tokens per second',
    },
    'measured',
    low=1.0,
    explanation='in every round, all heads read the emitted tokens, which '
    'takes longer than the better selection saves',
  ),
  verdicts.Claim(
    _META,
    "On a mix of domains and with EAGLE's trees, UCB emits more tokens per "
    'round than the best specialist',
    'metasd/heads',
    {'method': _UCB, 'prompts': 'in domain', 'domain': 'all'},
    'over_best',
    low=1.0,
    paper=15.260 / 11.957,  # Table 4: sums of the columns of UCB and the best.
  ),
  verdicts.Claim(
    _META,
    'On a mix of domains and with chains, UCB emits more tokens per round than '
    'the best specialist',
    'metasd/drafters-smollm2',
    {'method': _UCB, 'prompts': 'in domain', 'domain': 'all'},
    'over_best',
    low=1.0,
    paper=9.849 / 7.789,  # Table 3: sums of the columns of UCB and the best.
    explanation=f'{_CLOSE_HEADS}; and answers of 64 tokens have few rounds for '
    'exploration, as the next line shows',
  ),
  verdicts.Claim(
    _META,
    'On a mix of domains, UCB emits more tokens per round than the best '
    'specialist, for answers of 144 tokens and if UCB learns from the prompt',
    'metasd/answers-smollm2',
    {'method': f'{_UCB}, from the prompt', 'max_new_tokens': 144},
    'over_best',
    low=1.0,
    paper=9.849 / 7.789,
  ),
  verdicts.Claim(
    _META,
    'If the domain changes within a conversation, UCB emits more tokens per '
    'round than the best specialist',
    'metasd/two_tasks-smollm2',
    {'method': _UCB},
    'over_best',
    low=1.0,
    paper=1.951 / 1.759,  # Table 19, for two languages.
    explanation=_CLOSE_HEADS,
  ),
  verdicts.Claim(
    _META,
    'If UCB keeps its state from prompt to prompt, it emits at least 0.95 of '
    "the best specialist's tokens per round, in each domain",
    'metasd/sessions-heads',
    {'method': _UCB},
    'over_best',
    low=0.95,
    paper=3.520 / 3.903,  # Table 4, math: the domain with the largest loss.
  ),
  verdicts.Claim(
    _META,
    "With BD, UCB selects a domain's best head more often than with BE, over "
    'all domains',
    'metasd/alignment-smollm2',
    {
      'claim': 'rounds of UCB with the best arm, BD over BE, all',
      'source': 'MetaSD, Figure 3',
    },
    'measured',
    low=1.0,
  ),
  verdicts.Claim(
    _META,
    'On a mix of domains, UCB emits more tokens per round than a router that '
    'reads the prompt',
    'metasd/drafters-smollm2',
    {
      'claim': 'ucb1, BD over router, in domain',
      'source': 'MetaSD, Table 6',
    },
    'measured',
    low=1.0,
    explanation='domains differ by their words, so that the router is right'
    ' before the first round (column `accuracy`); on domains that it was '
    'not trained on, it is no better than UCB',
  ),
  verdicts.Claim(
    _META,
    'With chains, UCB emits more tokens per round with BD than with BE, over '
    'all domains',
    'metasd/drafters-smollm2',
    {'claim': 'ucb1, BD over ucb1, BE, all', 'source': 'MetaSD, Table 7'},
    'measured',
    low=1.0,
    explanation=_CLOSE_HEADS,
  ),
  verdicts.Claim(
    _META,
    "With EAGLE's trees, UCB emits more tokens per round with BD than with BE, "
    'over all domains',
    'metasd/heads',
    {'claim': 'ucb1, BD over ucb1, BE, all', 'source': 'MetaSD, Table 7'},
    'measured',
    low=1.0,
    explanation=_CLOSE_HEADS,
  ),
  verdicts.Claim(
    _CASCADES,
    'With a small model as drafter, the token rule is faster than BiLD at '
    "texts as likely as the target's",
    'cascades/frontier-smollm2_summarization',
    {'claim': 'token_v3 over bild, summarization', 'source': _AT_QUALITY},
    'measured',
    low=1.0,
    explanation='there are few prompts; with the better drafter of the next'
    ' line, there is less noise',
  ),
  verdicts.Claim(
    _CASCADES,
    'With a head of EAGLE-1 as drafter, the token rule is faster than BiLD at '
    "texts as likely as the target's",
    'cascades/frontier-heads_summarization',
    {'claim': 'token_v3 over bild, summarization', 'source': _AT_QUALITY},
    'measured',
    low=1.0,
  ),
  verdicts.Claim(
    _CASCADES,
    'The token rule is faster than lossy decoding at texts as likely as the '
    "target's",
    'cascades/frontier-smollm2_summarization',
    {'claim': 'token_v3 over lossy, summarization', 'source': _AT_QUALITY},
    'measured',
    low=1.0,
    paper=1.18 / 1.10,  # Table 2, without a corresponding row here.
    explanation='at no share does lossy decoding reach the likelihood of '
    'the target, with this drafter or with a head of EAGLE-1 '
    '(`cascades/frontier-heads_summarization`); the token rule does with '
    'both',
  ),
  verdicts.Claim(
    _CASCADES,
    'In mathematics, texts of the token rule are more likely at every share '
    'than those of lossy decoding with as many target calls (nats per token)',
    'cascades/decoder_only-smollm2_math',
    {'method': 'token_v3'},
    'nats_over_lossy',
    low=0.0,
  ),
  verdicts.Claim(
    _CASCADES,
    'In question answering, texts of the token rule are more likely at every '
    'share than those of lossy decoding with as many target calls (nats per '
    'token)',
    'cascades/decoder_only-smollm2_qa',
    {'method': 'token_v3'},
    'nats_over_lossy',
    low=0.0,
    explanation='it is above at all three shares, but beyond the noise of '
    '48 short answers only at the largest share',
  ),
  verdicts.Claim(
    _CASCADES,
    'In summarization, texts of the token rule are more likely at every share '
    'than those of lossy decoding with as many target calls (nats per token)',
    'cascades/decoder_only-smollm2_summarization',
    {'method': 'token_v3'},
    'nats_over_lossy',
    low=0.0,
    explanation='it is above at all three shares, and beyond the noise at '
    'two of them',
  ),
)

"""The papers' central claims, and the numbers that they are judged by.

Nothing is judged by hand but what is asked, which numbers answer it, and the
sentence that says why.
"""

from experiments import verdicts

_SPECTR, _BANDIT, _META = 'SpecTr', 'BanditSpec', 'MetaSD'
_CASCADES, _THEORY, _HEDGE = 'Speculative cascades', 'Theory', 'HedgeSpec'
_UCB = 'ucb1, BD'
_AT_QUALITY = 'Cascades, Table 2, equal quality (ours by target_nats)'
_COSTLY_CALLS = (
  'a call for more tokens takes longer here than in the paper (SpecTr, '
  'Table 2, in spectr.md), so that drafts cost more than they save'
)
_CLOSE_HEADS = (
  'the specialised heads are close to each other: the row `oracle`, which '
  'leaves each prompt to its best head, shows what there is to win'
)

CLAIMS = (
  verdicts.Claim(
    _SPECTR,
    'Eight drafts of four tokens emit 1.3 times as much a round as one, with '
    'k-Seq',
    'spectr/decode-smollm2',
    {'claim': '8 drafts of 4 over 1, drafter of 6M'},
    'measured',
    low=1.3,
    why='k-Seq keeps fewer drafts than is possible, as the next line shows',
  ),
  verdicts.Claim(
    _SPECTR,
    'Eight drafts of four tokens emit 1.3 times as much a round as one, with '
    'optimal transport',
    'spectr/decode-smollm2',
    {'claim': '8 drafts of 4 over 1, otm'},
    'measured',
    low=1.3,
  ),
  verdicts.Claim(
    _SPECTR,
    'Eight drafts of eight tokens are faster than one, by the clock',
    'spectr/speed-smollm2',
    {'claim': '8 drafts of 8 over 1, tokens per second'},
    'measured',
    low=1.0,
    why=_COSTLY_CALLS,
  ),
  verdicts.Claim(
    _THEORY,
    'Rejections are those of Theorem 1 in every domain (deviation in standard '
    'errors)',
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
    low=-1e-4,  # A rounding error is none.
  ),
  verdicts.Claim(
    _THEORY,
    'Responses of OPT are as likely as those of UNO (nats a token over them)',
    'theory/winrate-smollm2',
    {'method': 'OPT', 'against': 'UNO', 'judge': 'likelihood'},
    'gap',
    low=0.0,
    why='where few drafts are replaced, the rules differ by less than the '
    'noise of responses; what they differ by is in the line above, exactly',
  ),
  verdicts.Claim(
    _THEORY,
    'The length and number of drafts that theory chooses are the fastest draft '
    '(speed over that of the fastest)',
    'theory/practice-smollm2',
    {},
    'worth',
    low=0.95,
  ),
  verdicts.Claim(
    _BANDIT,
    'UCBSpec emits more a round than the best single drafter, of mixed traffic',
    'banditspec/heads',
    {'method': 'ucb_spec', 'domain': 'all'},
    'over_best',
    low=1.0,
    printed=3.98 / 3.94,  # Table 1, over Eagle-2, on Spec-Bench.
    why='it begins anew with every prompt, and an answer has few rounds to try '
    'four arms in (the longer the answer, the more a bandit has: '
    '`metasd/answers`); `hedge`, which sees all of them every round, has more',
  ),
  verdicts.Claim(
    _BANDIT,
    'UCBSpec has at least 0.9 of the tokens a second of the best draft length, '
    'at batch sizes 1, 4 and 8',
    'banditspec/lengths-heads',
    {'part': 'all batches', 'method': 'ucb_spec'},
    'over_best',
    low=0.9,
    why='the more rows there are, the more a length costs that does not pay, '
    'and it tries all of them for long (`mean_length`); `ucb1(beta=0.1)`, that '
    'tries less, has more',
  ),
  verdicts.Claim(
    _HEDGE,
    'NormalHedge, which sees all drafts, emits more a round than UCBSpec',
    'banditspec/experts-heads',
    {
      'claim': 'normal_hedge over ucb_spec, all',
      'source': 'HedgeSpec, block efficiency',
    },
    'measured',
    low=1.0,
    why=f'{_CLOSE_HEADS}; of seven specialists that are not close, those of '
    'mini, it holds, as the next line shows',
  ),
  verdicts.Claim(
    _HEDGE,
    'The same, of seven specialists of mini',
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
    'NormalHedge is faster than UCBSpec, where the clock charges what idle '
    'drafters read',
    'banditspec/experts-heads',
    {
      'claim': 'normal_hedge over ucb_spec, all',
      'source': 'HedgeSpec, tokens per second',
    },
    'measured',
    low=1.0,
    why='in every round all heads read what was said, and that takes longer '
    'than the choice saves',
  ),
  verdicts.Claim(
    _META,
    'UCB emits more a round than the best specialist, of mixed traffic, with '
    'trees of EAGLE',
    'metasd/heads',
    {'method': _UCB, 'prompts': 'in domain', 'domain': 'all'},
    'over_best',
    low=1.0,
    printed=15.260 / 11.957,  # Table 4: sums of two columns, ours and the best.
  ),
  verdicts.Claim(
    _META,
    'UCB emits more a round than the best specialist, of mixed traffic, with '
    'chains',
    'metasd/drafters-smollm2',
    {'method': _UCB, 'prompts': 'in domain', 'domain': 'all'},
    'over_best',
    low=1.0,
    printed=9.849 / 7.789,  # Table 3, likewise.
    why=f'{_CLOSE_HEADS}; and answers of 64 tokens have few rounds to try them '
    'in, as the next line shows',
  ),
  verdicts.Claim(
    _META,
    'The same, of answers of 144 tokens, where UCB learns from the prompt '
    'before the first round',
    'metasd/answers-smollm2',
    {'method': f'{_UCB}, from the prompt', 'max_new_tokens': 144},
    'over_best',
    low=1.0,
    printed=9.849 / 7.789,
  ),
  verdicts.Claim(
    _META,
    'UCB emits more a round than the best specialist, where the domain changes '
    'inside of a conversation',
    'metasd/two_tasks-smollm2',
    {'method': _UCB},
    'over_best',
    low=1.0,
    printed=1.951 / 1.759,  # Table 19, of two languages.
    why=_CLOSE_HEADS,
  ),
  verdicts.Claim(
    _META,
    'UCB that goes on from prompt to prompt has at least 0.95 of what the best '
    'specialist emits, in each domain alone',
    'metasd/sessions-heads',
    {'method': _UCB},
    'over_best',
    low=0.95,
    printed=3.520 / 3.903,  # Table 4, math: the domain where it loses the most.
  ),
  verdicts.Claim(
    _META,
    'With BD, UCB plays the best head of a domain more often than with BE, of '
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
    'UCB emits more a round than a router that reads the prompt, of mixed '
    'traffic',
    'metasd/drafters-smollm2',
    {
      'claim': 'ucb1, BD over router, in domain',
      'source': 'MetaSD, Table 6',
    },
    'measured',
    low=1.0,
    why="domains differ by their words: the column `accuracy` is the router's, "
    'which is right before the first round; of domains that it has not learnt, '
    'it is no better than UCB',
  ),
  verdicts.Claim(
    _META,
    'UCB emits more a round with BD than with BE, of all domains, with chains',
    'metasd/drafters-smollm2',
    {'claim': 'ucb1, BD over ucb1, BE, all', 'source': 'MetaSD, Table 7'},
    'measured',
    low=1.0,
    why=_CLOSE_HEADS,
  ),
  verdicts.Claim(
    _META,
    'UCB emits more a round with BD than with BE, of all domains, with trees '
    'of EAGLE',
    'metasd/heads',
    {'claim': 'ucb1, BD over ucb1, BE, all', 'source': 'MetaSD, Table 7'},
    'measured',
    low=1.0,
    why=_CLOSE_HEADS,
  ),
  verdicts.Claim(
    _CASCADES,
    'The token rule is faster than BiLD, where texts are as likely as the '
    "target's",
    'cascades/frontier-smollm2_summarization',
    {'claim': 'token_v3 over bild, summarization', 'source': _AT_QUALITY},
    'measured',
    low=1.0,
    why='there are few prompts; with a better draft, in the next line, there '
    'is less noise',
  ),
  verdicts.Claim(
    _CASCADES,
    'The same, drafted by a head of EAGLE-1',
    'cascades/frontier-heads_summarization',
    {'claim': 'token_v3 over bild, summarization', 'source': _AT_QUALITY},
    'measured',
    low=1.0,
  ),
  verdicts.Claim(
    _CASCADES,
    'The token rule is faster than lossy decoding, where texts are as likely '
    "as the target's",
    'cascades/frontier-smollm2_summarization',
    {'claim': 'token_v3 over lossy, summarization', 'source': _AT_QUALITY},
    'measured',
    low=1.0,
    printed=1.18 / 1.10,  # Table 2, which nothing here stands beside.
    why='at no share does lossy decoding reach the likelihood of the target, '
    'with this draft or with a head of EAGLE-1 '
    '(`cascades/frontier-heads_summarization`); the token rule does with both',
  ),
  verdicts.Claim(
    _CASCADES,
    'At every share, texts of the token rule are more likely than those of '
    'lossy decoding with as many target calls (nats a token), mathematics',
    'cascades/decoder_only-smollm2_math',
    {'method': 'token_v3'},
    'nats_over_lossy',
    low=0.0,
  ),
  verdicts.Claim(
    _CASCADES,
    'The same, questions',
    'cascades/decoder_only-smollm2_qa',
    {'method': 'token_v3'},
    'nats_over_lossy',
    low=0.0,
    why='it is above at all three shares, but beyond the noise of 48 short '
    'answers at the largest alone',
  ),
  verdicts.Claim(
    _CASCADES,
    'The same, summarization',
    'cascades/decoder_only-smollm2_summarization',
    {'method': 'token_v3'},
    'nats_over_lossy',
    low=0.0,
    why='it is above at all three shares, and beyond the noise at two of them',
  ),
)

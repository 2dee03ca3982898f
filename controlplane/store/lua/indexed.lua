-- ARGV: now. Answers since when what ends is in its group's index, 0 for ever: a version without one has ended the rest.
redis.call('SET', P .. 'grouped', intact() and ARGV[1] or '0', 'NX')
return redis.call('GET', P .. 'grouped')

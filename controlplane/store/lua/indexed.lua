-- ARGV: now. Returns since when ended sandboxes are added to their groups' indexes, 0: always. Older ends may be
-- missing there, since a version without the index stored them.
redis.call('SET', P .. 'grouped', intact() and ARGV[1] or '0', 'NX')
return redis.call('GET', P .. 'grouped')

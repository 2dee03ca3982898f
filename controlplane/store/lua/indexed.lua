-- Returns since when ended sandboxes are added to their groups' indexes, 0: always. Older ends may be missing there,
-- since a version without the index stored them.
-- args: now
redis.call('SET', P .. 'grouped', intact() and a.now or '0', 'NX')
return redis.call('GET', P .. 'grouped')

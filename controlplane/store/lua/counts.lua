-- Store.counts. Returns state, count, state, count, ...
-- args: now:number
if not intact() then return redis.error_reply('LOST') end
trim(a.now)
return redis.call('HGETALL', P .. 'counts')

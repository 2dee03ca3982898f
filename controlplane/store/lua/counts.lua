-- Store.counts. ARGV: now. Returns state, count, state, count, ...
if not intact() then return redis.error_reply('LOST') end
trim(tonumber(ARGV[1]))
return redis.call('HGETALL', P .. 'counts')

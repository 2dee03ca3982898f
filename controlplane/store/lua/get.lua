-- Store.get and Store.peek. ARGV: id, and any second argument to read a lost store too. Returns the record and when it
-- ended; nil for what there is not.
if not intact() and not ARGV[2] then return redis.error_reply('LOST') end
return redis.call('HMGET', P .. 's:' .. ARGV[1], 'record', 'ended')

-- ARGV: id, and anything where a lost store is asked too. Answers the record and when it ended, as far as there are such.
if not intact() and not ARGV[2] then return redis.error_reply('LOST') end
return redis.call('HMGET', P .. 's:' .. ARGV[1], 'record', 'ended')

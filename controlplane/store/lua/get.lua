-- ARGV: id. Answers the record and when it ended, as far as there are such.
if not intact() then return redis.error_reply('LOST') end
return redis.call('HMGET', P .. 's:' .. ARGV[1], 'record', 'ended')

-- Store.get and Store.peek. `lost` is '1' to read a lost store too. Returns the record and when it ended; nil for what
-- there is not.
-- args: id lost
if a.lost ~= '1' and not intact() then return redis.error_reply('LOST') end
return redis.call('HMGET', P .. 's:' .. a.id, 'record', 'ended')

-- Store.usage. `owner` is '' for all owners together. Returns resource, used, resource, used, ...
-- args: owner
if not intact() then return redis.error_reply('LOST') end
return redis.call('HGETALL', P .. 'used:' .. a.owner)

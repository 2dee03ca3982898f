-- Store.epoch. Returns the name of the store's content.
if not intact() then return redis.error_reply('LOST') end
return redis.call('GET', P .. 'intact')

-- Answers what this filling of the store is called.
if not intact() then return redis.error_reply('LOST') end
return redis.call('GET', P .. 'intact')

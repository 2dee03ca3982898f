-- Store.rebuilt. `content_id` is the name of the restored content. Returns 1: the store is intact; 0: it was emptied
-- again since the rebuild began.
-- args: content_id
if redis.call('GET', P .. 'intact') == a.content_id then return 1 end
if redis.call('HGET', P .. 'rebuild', 'filling') ~= a.content_id then return 0 end
redis.call('SET', P .. 'intact', a.content_id)
redis.call('DEL', P .. 'rebuild')
return 1

use std::num::NonZeroU32;

/// 32-bit FNV-1a: its offset basis and its prime.
const BASIS: u32 = 0x811c_9dc5;
const PRIME: u32 = 0x0100_0193;

/// The number of a sandbox's headless Service, from 0: a single Service would send every change of any sandbox to each
/// of its watchers. `contract/vectors/shard.json` has the results, which the control plane must compute too.
pub fn shard(sandbox_id: &str, shards: NonZeroU32) -> u32 {
    let hash = sandbox_id.bytes().fold(BASIS, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(PRIME));
    hash % shards
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vectors_hold() {
        let vectors: serde_json::Value =
            serde_json::from_str(include_str!("../../../../contract/vectors/shard.json")).unwrap();
        let vectors = vectors.as_array().unwrap();
        assert!(!vectors.is_empty());
        for vector in vectors {
            let id = vector["id"].as_str().unwrap();
            for shards in [1, 7, 16] {
                let expected = vector[format!("shard_of_{shards}")].as_u64().unwrap();
                let found = shard(id, NonZeroU32::new(shards).unwrap());
                assert_eq!(u64::from(found), expected, "{id} of {shards}");
            }
        }
    }
}

use std::collections::HashMap;

use sha2::{Digest, Sha256};

use crate::Claims;

/// SHA-256 of a token: the cache holds no credential, and no collision can be constructed.
pub(crate) type Fingerprint = [u8; 32];

pub(crate) fn fingerprint(token: &str) -> Fingerprint {
    Sha256::digest(token.as_bytes()).into()
}

/// Verified tokens, at most twice `generation_size`.
///
/// Two generations stand in for LRU: entries are found in either and move to the young one when used; when the
/// young one is full it becomes the old one and the old one is dropped whole. O(1), no list to maintain.
#[derive(Debug)]
pub(crate) struct Cache {
    generation_size: usize,
    young: HashMap<Fingerprint, Claims>,
    old: HashMap<Fingerprint, Claims>,
}

impl Cache {
    pub(crate) fn new(generation_size: usize) -> Self {
        Self { generation_size, young: HashMap::new(), old: HashMap::new() }
    }

    pub(crate) fn get(&mut self, key: &Fingerprint) -> Option<Claims> {
        if let Some(claims) = self.young.get(key) {
            return Some(claims.clone());
        }
        let claims = self.old.remove(key)?;
        self.insert(*key, claims.clone());
        Some(claims)
    }

    pub(crate) fn insert(&mut self, key: Fingerprint, claims: Claims) {
        if self.young.len() >= self.generation_size {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, claims);
    }

    pub(crate) fn remove(&mut self, key: &Fingerprint) {
        self.young.remove(key);
        self.old.remove(key);
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims(id: &str) -> Claims {
        let scopes = Vec::new().into();
        Claims { sandbox_id: id.into(), owner: "o".into(), scopes, expires_at_s: 1, settings: None }
    }

    #[test]
    fn it_never_holds_more_than_two_generations() {
        let mut cache = Cache::new(8);
        for n in 0..1000 {
            cache.insert(fingerprint(&format!("token {n}")), claims("sb"));
            assert!(cache.len() <= 16);
        }
    }

    #[test]
    fn an_entry_in_use_survives_any_number_of_others() {
        let mut cache = Cache::new(8);
        let kept = fingerprint("kept");
        cache.insert(kept, claims("sb-kept"));
        for n in 0..1000 {
            cache.insert(fingerprint(&format!("token {n}")), claims("sb"));
            assert_eq!(cache.get(&kept), Some(claims("sb-kept")), "after {n} others");
        }
    }

    #[test]
    fn a_removed_entry_is_gone_from_both_generations() {
        let mut cache = Cache::new(1);
        let (first, second) = (fingerprint("first"), fingerprint("second"));
        cache.insert(first, claims("sb-1"));
        cache.insert(second, claims("sb-2"));
        cache.remove(&first);
        cache.remove(&second);
        assert_eq!(cache.len(), 0);
    }
}

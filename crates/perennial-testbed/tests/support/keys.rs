//! Keys of every kind, for certificates that Perennial issues.

use std::sync::OnceLock;

use perennial_core::key::KeySpec;
use perennial_x509::{KeyPool, PrivateKey};

/// The keys of one kind, for each role of a certificate.
pub struct Keys {
    pub root: PrivateKey,
    pub other_root: PrivateKey,
    pub subject: PrivateKey,
    pub leaf: PrivateKey,
}

/// RSA keys are slow to generate: each process generates the required ones once.
pub fn keys(kind: KeySpec) -> &'static Keys {
    static KEYS: [OnceLock<Keys>; KeySpec::ALL.len()] = [const { OnceLock::new() }; KeySpec::ALL.len()];
    let index = KeySpec::ALL.iter().position(|&other| other == kind).unwrap();
    KEYS[index].get_or_init(|| {
        let pool = KeyPool::new(std::thread::available_parallelism().unwrap()).unwrap();
        let mut keys = pool.generate_all(&[kind; 4], |_, _| {}).into_iter().map(|key| key.unwrap().key);
        let mut next = || keys.next().unwrap();
        Keys { root: next(), other_root: next(), subject: next(), leaf: next() }
    })
}

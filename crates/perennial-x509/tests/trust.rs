//! Core decides about trust without signatures. On random PKIs it must agree with the verifier of real bytes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use jiff::{SignedDuration, Timestamp};
use perennial_core::catalog;
use perennial_core::key::KeySpec;
use perennial_core::policy::Usage;
use perennial_core::spec::{CertificateSpec, Host, Subject, Validity};
use perennial_core::trust::{Need, best_path};
use perennial_x509::verify::{Purpose, Verification, verify};
use perennial_x509::{Certificate, Issuer, PrivateKey, cross_sign, issue, self_signed, trust};
use proptest::prelude::*;

/// A step in the creation of a PKI; numbers refer to earlier certificates.
#[derive(Debug, Clone)]
enum Step {
    Root { name: u8, key: usize, from: i64, days: i64 },
    Intermediate { name: u8, key: usize, signer: usize, from: i64, days: i64 },
    Cross { subject: usize, signer: usize, from: i64, days: i64 },
    Leaf { usage: Usage, signer: usize, from: i64, days: i64 },
}

struct Pki {
    signers: Vec<(Certificate, usize)>,
    leaves: Vec<Certificate>,
}

fn keys() -> &'static [PrivateKey] {
    static KEYS: std::sync::LazyLock<Vec<PrivateKey>> =
        std::sync::LazyLock::new(|| (0..5).map(|_| PrivateKey::generate(KeySpec::ALL[3]).unwrap()).collect());
    &KEYS
}

fn day(number: i64) -> Timestamp {
    let first: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    first + SignedDuration::from_hours(24 * number)
}

fn spec(usage: Usage, name: String, validity: Validity) -> CertificateSpec {
    let hosts = if usage.serves() { vec![Host::Dns("web.test".to_owned())] } else { Vec::new() };
    let subject = Subject::common_name(name);
    CertificateSpec { subject: subject.into(), usage, hosts, validity, key: KeySpec::ALL[3], extensions: Vec::new() }
}

/// Issues what can be issued; a certificate that would expire after its signer is shortened or left out.
fn make(steps: &[Step]) -> Pki {
    let mut pki = Pki { signers: Vec::new(), leaves: Vec::new() };
    for step in steps {
        let within = |signer: usize, from: i64, days: i64| -> Option<(usize, Validity)> {
            let signer = signer.checked_rem(pki.signers.len())?;
            let life = pki.signers[signer].0.facts().validity;
            let validity = Validity {
                not_before: day(from).max(life.not_before),
                not_after: day(from + days).min(life.not_after),
            };
            (validity.not_before < validity.not_after).then_some((signer, validity))
        };
        let made = match *step {
            Step::Root { name, key, from, days } => {
                let validity = Validity { not_before: day(from), not_after: day(from + days) };
                let spec = spec(Usage::Signer, format!("ca{name}"), validity);
                Some((self_signed(&spec, &keys()[key]).unwrap(), Some(key)))
            }
            Step::Intermediate { name, key, signer, from, days } => {
                within(signer, from, days).map(|(signer, validity)| {
                    let (certificate, signer_key) = &pki.signers[signer];
                    let issuer = Issuer::new(certificate, &keys()[*signer_key]).unwrap();
                    let spec = spec(Usage::Signer, format!("ca{name}"), validity);
                    (issue(&spec, keys()[key].public_key(), &issuer).unwrap(), Some(key))
                })
            }
            Step::Cross { subject, signer, from, days } => within(signer, from, days).map(|(signer, validity)| {
                let (certificate, signer_key) = &pki.signers[signer];
                let (other, other_key) = &pki.signers[subject % pki.signers.len()];
                let issuer = Issuer::new(certificate, &keys()[*signer_key]).unwrap();
                (cross_sign(other, validity, &issuer).unwrap(), Some(*other_key))
            }),
            Step::Leaf { usage, signer, from, days } => within(signer, from, days).map(|(signer, validity)| {
                let (certificate, signer_key) = &pki.signers[signer];
                let issuer = Issuer::new(certificate, &keys()[*signer_key]).unwrap();
                (issue(&spec(usage, "leaf".to_owned(), validity), keys()[4].public_key(), &issuer).unwrap(), None)
            }),
        };
        match made {
            Some((certificate, Some(key))) => pki.signers.push((certificate, key)),
            Some((certificate, None)) => pki.leaves.push(certificate),
            None => {}
        }
    }
    pki
}

fn any_step() -> impl Strategy<Value = Step> {
    let life = || (0..20_i64, 1..30_i64);
    let usage = prop::sample::select(vec![Usage::Serving, Usage::Client, Usage::Peer]);
    prop_oneof![
        (0..2_u8, 0..4_usize, life()).prop_map(|(name, key, (from, days))| Step::Root { name, key, from, days }),
        (0..2_u8, 0..4_usize, any::<usize>(), life())
            .prop_map(|(name, key, signer, (from, days))| Step::Intermediate { name, key, signer, from, days }),
        (any::<usize>(), any::<usize>(), life()).prop_map(|(subject, signer, (from, days))| Step::Cross {
            subject,
            signer,
            from,
            days
        }),
        (usage, any::<usize>(), life()).prop_map(|(usage, signer, (from, days))| Step::Leaf {
            usage,
            signer,
            from,
            days
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn core_and_the_verifier_agree(
        steps in prop::collection::vec(any_step(), 3..14),
        anchors in any::<u16>(),
        chain in any::<u16>(),
    ) {
        let pki = make(&steps);
        let all: Vec<&Certificate> = pki.signers.iter().map(|(signer, _)| signer).chain(&pki.leaves).collect();
        let facts = trust::facts(all.iter().copied());
        let chosen = |mask: u16| -> Vec<Certificate> {
            let bit = |index: usize| mask >> (index % 16) & 1 == 1;
            pki.signers.iter().enumerate().filter(|(index, _)| bit(*index)).map(|(_, (signer, _))| signer.clone()).collect()
        };
        let (anchors, intermediates) = (chosen(anchors), chosen(chain));
        let in_core = |certificates: &[Certificate]| -> Vec<_> {
            certificates.iter().map(|it| facts.get(&trust::id(it)).unwrap().clone()).collect()
        };
        let (core_anchors, core_chain) = (in_core(&anchors), in_core(&intermediates));
        let hosts = [Host::Dns("web.test".to_owned())];
        for leaf in &pki.leaves {
            for at in (0..50).step_by(7).map(day) {
                for purpose in [catalog::Purpose::Server, catalog::Purpose::Client] {
                    let real_purpose = match purpose {
                        catalog::Purpose::Server => Purpose::Server { name: Some(hosts[0].clone()) },
                        catalog::Purpose::Client => Purpose::Client,
                    };
                    let question =
                        Verification { leaf, intermediates: &intermediates, anchors: &anchors, at, purpose: &real_purpose };
                    let real = verify(&question);
                    let need = Need { purpose, hosts: &hosts, at };
                    let core = best_path(facts.get(&trust::id(leaf)).unwrap(), &core_chain, &core_anchors, &need);
                    prop_assert_eq!(real.is_ok(), core.is_ok(), "{:?} against {:?}", real, core);
                    // Core finds the path that is valid longest; the verifier finds any path.
                    if let (Ok(path), Ok(until)) = (real, core) {
                        prop_assert!(path.validity().not_after <= until);
                    }
                }
            }
        }
    }
}

//! A campaign: many rotations for one reason, a few at a time. Signers come first, so that each leaf is replaced once.
//!
//! A campaign requests a rotation by an annotation with the reason on the Secret. The operator rotates the certificate and records the
//! reason on the same Secret. So the Secret itself shows the progress, and each reason rotates once.

use std::collections::{BTreeMap, VecDeque};

use crate::snapshot::Slot;

/// The longest accepted reason, in bytes: it is recorded on the object and appears in logs and events.
pub const LONGEST_REASON: usize = 1024;
/// How often a campaign requests one rotation, if another writer removes the request.
const MOST_ASKS: u32 = 3;

/// Returns the trimmed reason; none if the text is empty, longer than [`LONGEST_REASON`] or has control characters.
pub fn reason(text: &str) -> Option<&str> {
    let text = text.trim();
    let is_reason = !text.is_empty() && text.len() <= LONGEST_REASON && !text.chars().any(char::is_control);
    is_reason.then_some(text)
}

/// A certificate to rotate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// The place of the certificate.
    pub slot: Slot,
    /// True for a signer.
    pub is_signer: bool,
}

/// The annotations of a Secret about requested rotations.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seen {
    /// The reason of the last requested rotation.
    pub asked: Option<String>,
    /// The reason of the last completed forced rotation.
    pub done: Option<String>,
    /// Whether the certificate already is what the campaign wants, such as one with the key of the policy; none if any new
    /// certificate is.
    pub is_right: Option<bool>,
}

/// The next action for a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Request its rotation.
    Ask,
    /// Look at it again later.
    Wait,
    /// None: its rotation has ended.
    Nothing,
}

/// The result of the rotation of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// This campaign rotated it.
    Rotated,
    /// There was nothing to do: it was rotated for this reason before, or already is as wanted.
    Already,
    /// It was not rotated; with the reason.
    Failed(String),
}

/// The rotations for one reason: those to request, those in progress, and the result of each.
#[derive(Debug)]
pub struct Campaign {
    reason: String,
    at_once: usize,
    /// Signers, then leaves; each in the given order.
    open: VecDeque<Candidate>,
    under_way: BTreeMap<Slot, UnderWay>,
    ended: Vec<(Slot, Outcome)>,
}

/// A certificate whose rotation is in progress.
#[derive(Debug, Clone, Copy)]
struct UnderWay {
    is_signer: bool,
    /// True if its Secret was looked at.
    is_seen: bool,
    /// How often its rotation was requested.
    asks: u32,
}

impl Campaign {
    /// Creates a campaign that rotates these certificates for this reason, at most `at_once` at the same time.
    pub fn new(candidates: Vec<Candidate>, reason: &str, at_once: usize) -> Campaign {
        let (signers, others): (Vec<_>, Vec<_>) = candidates.into_iter().partition(|it| it.is_signer);
        Campaign {
            reason: reason.to_owned(),
            at_once: at_once.max(1),
            open: signers.into_iter().chain(others).collect(),
            under_way: BTreeMap::new(),
            ended: Vec::new(),
        }
    }

    /// Returns the certificates to look at now. Leaves wait until no signer is in progress.
    pub fn look_at(&mut self) -> Vec<Slot> {
        while self.under_way.len() < self.at_once
            && let Some(next) = self.open.front()
            && (next.is_signer || !self.under_way.values().any(|it| it.is_signer))
            && let Some(Candidate { slot, is_signer }) = self.open.pop_front()
        {
            self.under_way.insert(slot, UnderWay { is_signer, is_seen: false, asks: 0 });
        }
        self.under_way.keys().cloned().collect()
    }

    /// Returns the next action for a certificate after a look at its Secret; `seen` is none if the Secret does not exist.
    pub fn saw(&mut self, slot: &Slot, seen: Option<&Seen>) -> Next {
        let Some(it) = self.under_way.get_mut(slot) else { return Next::Nothing };
        let is_first = !std::mem::replace(&mut it.is_seen, true);
        let Some(seen) = seen else { return self.end(slot, Outcome::Failed("the Secret does not exist".to_owned())) };
        let reason = Some(self.reason.as_str());
        let (asked, done) = (seen.asked.as_deref(), seen.done.as_deref());
        if done == reason {
            let outcome = match (seen.is_right, is_first) {
                (Some(false), true) => "this reason was used before; pass another --reason",
                (Some(false), false) => "it was rotated, but still is not what the policy asks for",
                (_, true) => return self.end(slot, Outcome::Already),
                (_, false) => return self.end(slot, Outcome::Rotated),
            };
            return self.end(slot, Outcome::Failed(outcome.to_owned()));
        }
        // A rotation for another reason in progress ends first, so that its reason is recorded too.
        if asked.is_some() && asked != done {
            return Next::Wait;
        }
        match it.asks {
            _ if seen.is_right == Some(true) => self.end(slot, Outcome::Already),
            MOST_ASKS.. => self.end(slot, Outcome::Failed("another writer keeps removing the request".to_owned())),
            _ => Next::Ask,
        }
    }

    /// Records that a rotation was requested.
    pub fn asked(&mut self, slot: &Slot) {
        self.under_way.get_mut(slot).into_iter().for_each(|it| it.asks += 1);
    }

    /// Records that a certificate cannot be rotated, and why.
    pub fn failed(&mut self, slot: &Slot, why: String) {
        if self.under_way.contains_key(slot) {
            self.end(slot, Outcome::Failed(why));
        }
    }

    fn end(&mut self, slot: &Slot, outcome: Outcome) -> Next {
        self.under_way.remove(slot);
        self.ended.push((slot.clone(), outcome));
        Next::Nothing
    }

    /// Returns the results, in the order of time.
    pub fn ended(&self) -> &[(Slot, Outcome)] {
        &self.ended
    }

    /// Returns the certificates whose rotation is in progress.
    pub fn under_way(&self) -> impl Iterator<Item = &Slot> {
        self.under_way.keys()
    }

    /// Returns how many rotations have not ended: those in progress and those not started.
    pub fn left(&self) -> usize {
        self.under_way.len() + self.open.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::ObjectName;

    const REASON: &str = "other keys";

    fn slot(name: &str) -> Slot {
        Slot::tls(&ObjectName { namespace: "shop".to_owned(), name: name.to_owned() })
    }

    fn campaign(names: &[&str], at_once: usize) -> Campaign {
        let candidate = |name: &&str| Candidate { slot: slot(name), is_signer: name.ends_with("signer") };
        Campaign::new(names.iter().map(candidate).collect(), REASON, at_once)
    }

    fn seen(asked: Option<&str>, done: Option<&str>) -> Seen {
        Seen { asked: asked.map(str::to_owned), done: done.map(str::to_owned), is_right: None }
    }

    fn see(campaign: &mut Campaign, name: &str, asked: Option<&str>, done: Option<&str>) -> Next {
        campaign.saw(&slot(name), Some(&seen(asked, done)))
    }

    fn outcome(campaign: &Campaign, name: &str) -> Option<Outcome> {
        campaign.ended().iter().find(|(it, _)| *it == slot(name)).map(|(_, outcome)| outcome.clone())
    }

    #[test]
    fn signers_come_first_and_at_most_the_allowed_number_is_in_progress() {
        let mut campaign = campaign(&["a", "b", "x-signer", "c"], 2);
        // Leaves wait for the signer, although more rotations are allowed.
        assert_eq!(campaign.look_at(), [slot("x-signer")]);
        assert_eq!(see(&mut campaign, "x-signer", None, None), Next::Ask);
        campaign.asked(&slot("x-signer"));
        assert_eq!(see(&mut campaign, "x-signer", Some(REASON), None), Next::Wait);
        assert_eq!(campaign.look_at(), [slot("x-signer")]);
        assert_eq!(see(&mut campaign, "x-signer", Some(REASON), Some(REASON)), Next::Nothing);
        assert_eq!(outcome(&campaign, "x-signer"), Some(Outcome::Rotated));
        assert_eq!(campaign.look_at(), [slot("a"), slot("b")]);
        see(&mut campaign, "b", None, Some(REASON));
        assert_eq!(campaign.look_at(), [slot("a"), slot("c")]);
        assert_eq!(campaign.left(), 2);
    }

    #[test]
    fn a_reason_rotates_once() {
        let mut campaign = campaign(&["a", "b"], 2);
        campaign.look_at();
        see(&mut campaign, "a", Some(REASON), Some(REASON));
        assert_eq!(outcome(&campaign, "a"), Some(Outcome::Already));
        // An earlier campaign requested the rotation and was interrupted: this one sees it end.
        assert_eq!(see(&mut campaign, "b", Some(REASON), Some("another")), Next::Wait);
        see(&mut campaign, "b", Some(REASON), Some(REASON));
        assert_eq!(outcome(&campaign, "b"), Some(Outcome::Rotated));
        assert_eq!(campaign.left(), 0);
    }

    #[test]
    fn a_rotation_for_another_reason_ends_first() {
        let mut campaign = campaign(&["a"], 1);
        campaign.look_at();
        assert_eq!(see(&mut campaign, "a", Some("a lost laptop"), None), Next::Wait);
        assert_eq!(see(&mut campaign, "a", Some("a lost laptop"), Some("a lost laptop")), Next::Ask);
    }

    #[test]
    fn a_right_certificate_is_not_rotated_and_one_that_stays_wrong_has_failed() {
        let mut campaign = campaign(&["right", "wrong", "used"], 3);
        campaign.look_at();
        let state = |asked, done, is_right| Seen { is_right: Some(is_right), ..seen(asked, done) };
        campaign.saw(&slot("right"), Some(&state(None, None, true)));
        assert_eq!(outcome(&campaign, "right"), Some(Outcome::Already));
        assert_eq!(campaign.saw(&slot("wrong"), Some(&state(None, None, false))), Next::Ask);
        campaign.saw(&slot("wrong"), Some(&state(Some(REASON), Some(REASON), false)));
        assert!(matches!(outcome(&campaign, "wrong"), Some(Outcome::Failed(why)) if why.contains("still is not")));
        campaign.saw(&slot("used"), Some(&state(None, Some(REASON), false)));
        assert!(matches!(outcome(&campaign, "used"), Some(Outcome::Failed(why)) if why.contains("used before")));
    }

    #[test]
    fn a_rotation_is_not_requested_forever() {
        let mut campaign = campaign(&["a", "gone"], 2);
        campaign.look_at();
        for _ in 0..MOST_ASKS {
            assert_eq!(see(&mut campaign, "a", None, None), Next::Ask);
            campaign.asked(&slot("a"));
        }
        assert_eq!(see(&mut campaign, "a", None, None), Next::Nothing);
        assert!(matches!(outcome(&campaign, "a"), Some(Outcome::Failed(_))));
        assert_eq!(campaign.saw(&slot("gone"), None), Next::Nothing);
        assert!(matches!(outcome(&campaign, "gone"), Some(Outcome::Failed(_))));
    }

    #[test]
    fn a_reason_is_a_short_text_in_one_line() {
        assert_eq!(reason(" key was copied\n"), Some("key was copied"));
        let longest = "a".repeat(LONGEST_REASON);
        assert_eq!(reason(&longest), Some(longest.as_str()));
        for refused in ["", " ", "two\nlines", "\u{1b}[31mred", &format!("{longest}a")] {
            assert_eq!(reason(refused), None, "{refused:?}");
        }
    }
}

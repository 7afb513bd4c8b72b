//! Many rotations for one reason, a few at a time: signers first, so that what they sign is replaced once.
//!
//! A rotation is asked for by writing a reason on the Secret; the operator rotates, and records the reason beside it. So the Secret
//! itself says how far a rotation is, whoever asked for it, and each reason acts once.

use std::collections::{BTreeMap, VecDeque};

use crate::snapshot::Slot;

/// The longest reason that counts, in bytes: it is recorded on the object and told in logs and events.
pub const LONGEST_REASON: usize = 1024;
/// How often a certificate is asked for in one campaign, where somebody else takes the request back.
const MOST_ASKS: u32 = 3;

/// Returns the reason in a text, trimmed; none where the text is empty, longer than [`LONGEST_REASON`] or has control characters.
pub fn reason(text: &str) -> Option<&str> {
    let text = text.trim();
    let is_reason = !text.is_empty() && text.len() <= LONGEST_REASON && !text.chars().any(char::is_control);
    is_reason.then_some(text)
}

/// A certificate to rotate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Where it is kept.
    pub slot: Slot,
    /// Whether it signs others.
    pub is_signer: bool,
}

/// What a Secret says about rotations that were asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seen {
    /// The reason of the last rotation that somebody asked for.
    pub asked: Option<String>,
    /// The reason of the last forced rotation that was carried out.
    pub done: Option<String>,
    /// Whether the certificate is what the campaign is to reach, such as one with the key that the policy asks for; none where any
    /// new certificate is.
    pub is_right: Option<bool>,
}

/// What to do about a certificate after a look at its Secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Ask for its rotation.
    Ask,
    /// Look again.
    Wait,
    /// Nothing: its rotation has ended.
    Nothing,
}

/// How the rotation of a certificate ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It was rotated for this reason by this campaign.
    Rotated,
    /// There was nothing to do: it was rotated for this reason before, or is right without it.
    Already,
    /// It was not rotated, and why.
    Failed(String),
}

/// Rotations for one reason: what is to be asked for, what is under way, and how each ended.
#[derive(Debug)]
pub struct Campaign {
    reason: String,
    at_once: usize,
    /// Signers, then everything else; within each in the order in which they came.
    open: VecDeque<Candidate>,
    under_way: BTreeMap<Slot, UnderWay>,
    ended: Vec<(Slot, Outcome)>,
}

/// A certificate that is under way.
#[derive(Debug, Clone, Copy)]
struct UnderWay {
    is_signer: bool,
    /// Whether somebody has looked at it.
    is_seen: bool,
    /// How often it was asked for.
    asks: u32,
}

impl Campaign {
    /// Rotates these certificates for this reason, no more than so many at once.
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

    /// Returns the certificates to look at now. What a signer signs waits until no signer is under way.
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

    /// Says what to do about a certificate of which this was seen; none where there is no Secret.
    pub fn saw(&mut self, slot: &Slot, seen: Option<&Seen>) -> Next {
        let Some(it) = self.under_way.get_mut(slot) else { return Next::Nothing };
        let is_first = !std::mem::replace(&mut it.is_seen, true);
        let Some(seen) = seen else { return self.end(slot, Outcome::Failed("there is no such Secret".to_owned())) };
        let reason = Some(self.reason.as_str());
        let (asked, done) = (seen.asked.as_deref(), seen.done.as_deref());
        if done == reason {
            let outcome = match (seen.is_right, is_first) {
                (Some(false), true) => "this reason was used before; pass another --reason",
                (Some(false), false) => "it was rotated, and still is not what the policy asks for",
                (_, true) => return self.end(slot, Outcome::Already),
                (_, false) => return self.end(slot, Outcome::Rotated),
            };
            return self.end(slot, Outcome::Failed(outcome.to_owned()));
        }
        // What is under way for another reason is waited for: that reason is to be recorded, too.
        if asked.is_some() && asked != done {
            return Next::Wait;
        }
        match it.asks {
            _ if seen.is_right == Some(true) => self.end(slot, Outcome::Already),
            MOST_ASKS.. => self.end(slot, Outcome::Failed("somebody else takes the request back".to_owned())),
            _ => Next::Ask,
        }
    }

    /// Notes that a rotation was asked for.
    pub fn asked(&mut self, slot: &Slot) {
        self.under_way.get_mut(slot).into_iter().for_each(|it| it.asks += 1);
    }

    /// Notes that a certificate cannot be rotated, and why.
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

    /// Returns how the rotations ended, in the order of time.
    pub fn ended(&self) -> &[(Slot, Outcome)] {
        &self.ended
    }

    /// Returns the certificates that are under way.
    pub fn under_way(&self) -> impl Iterator<Item = &Slot> {
        self.under_way.keys()
    }

    /// Returns how many have not ended: those under way and those that were not begun.
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
    fn signers_come_first_and_no_more_are_under_way_than_allowed() {
        let mut campaign = campaign(&["a", "b", "x-signer", "c"], 2);
        // What a signer signs waits for it, although there is room.
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
    fn a_reason_acts_once() {
        let mut campaign = campaign(&["a", "b"], 2);
        campaign.look_at();
        see(&mut campaign, "a", Some(REASON), Some(REASON));
        assert_eq!(outcome(&campaign, "a"), Some(Outcome::Already));
        // An earlier campaign asked, and was interrupted: this one sees the rotation end.
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
    fn what_is_right_already_is_not_asked_for_and_what_stays_wrong_has_failed() {
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
    fn nothing_is_asked_for_for_ever() {
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

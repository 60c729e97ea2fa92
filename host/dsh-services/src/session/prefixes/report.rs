//! What is told of a request's prefix, and the sum over all requests.

use dsh_seam::PluginName;
use dsh_seam::message::{Role, Usage};
use serde::Serialize;

/// Bytes of texts, arguments, schemas and data, and the host's estimate of the tokens that they are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Size {
    /// Without what a protocol puts around them.
    pub bytes: u64,
    /// By the host's estimate.
    pub tokens: u64,
}

impl Size {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: Size) -> Size {
        Size { bytes: self.bytes + other.bytes, tokens: self.tokens + other.tokens }
    }

    /// What is left without `other`, which is a part of it.
    #[must_use]
    pub(super) fn minus(self, other: Size) -> Size {
        Size { bytes: self.bytes - other.bytes, tokens: self.tokens - other.tokens }
    }

    /// Which part of `whole` this is, from 0 to 1, by tokens; 0 of nothing.
    pub fn share_of(self, whole: Size) -> f64 {
        if whole.tokens == 0 { 0.0 } else { self.tokens as f64 / whole.tokens as f64 }
    }
}

/// One request beside the request before it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestPrefix {
    /// The turn.
    pub turn: u32,
    /// The step.
    pub step: u32,
    /// The attempt, from 1.
    pub attempt: u32,
    /// The sequence number of its `request/sent`.
    pub seq: u64,
    /// When it was sent, in Unix milliseconds.
    pub time: u64,
    /// `PROVIDER/MODEL`.
    pub model: String,
    /// How many messages it has.
    pub messages: u32,
    /// How large it is.
    #[serde(flatten)]
    pub size: Size,
    /// How much of it is the beginning of the request before, in whole tools and messages, the system prompt to the byte; none: there
    /// is no request before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub common: Option<Size>,
    /// Where it stops being what the request before was; none: the request before is a prefix of it, or it of the request before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broken: Option<Break>,
    /// How it differs from the request before in what some providers keep their caches apart by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampling: Option<SamplingChange>,
    /// How long after the request before it was sent, when that is so long that providers may have forgotten it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause_ms: Option<u64>,
    /// What the provider counted for it, if it said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// The code that it failed with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

/// Where a prefix ends that could have gone on, and who ended it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Break {
    /// Where.
    #[serde(flatten)]
    pub place: Place,
    /// Who.
    pub by: Vec<Culprit>,
}

/// A place in a request, in the order in which providers cache.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "at", rename_all = "kebab-case")]
pub enum Place {
    /// Another model: nothing of a cache is of use.
    Model {
        /// The model of the request before.
        before: String,
        /// The model now.
        after: String,
    },
    /// The tools.
    Tools {
        /// The first that differs, from 0.
        index: usize,
        /// Its name in the request before; none: there were fewer.
        #[serde(skip_serializing_if = "Option::is_none")]
        before: Option<String>,
        /// Its name now; none: there are fewer. The same as before: it is described in another way.
        #[serde(skip_serializing_if = "Option::is_none")]
        after: Option<String>,
    },
    /// The system prompt.
    System {
        /// The first byte that differs, from 0.
        byte: usize,
        /// The first of the plugins' sections that differs, if one does.
        #[serde(skip_serializing_if = "Option::is_none")]
        section: Option<SectionChange>,
    },
    /// The messages.
    Messages {
        /// The first that differs, from 0.
        index: usize,
        /// What it was.
        before: Kind,
        /// What it is.
        after: Kind,
    },
}

/// What happened to a section of the system prompt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SectionChange {
    /// Whose.
    pub plugin: PluginName,
    /// Its name.
    pub name: String,
    /// What happened.
    pub change: Change,
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// It was not there.
    New,
    /// It is not there.
    Gone,
    /// It was another, or in another place.
    Changed,
}

/// What a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Kind {
    /// Whose turn it was to speak.
    pub role: Role,
    /// Where it came from: `user`, `steering`, `context`, `assistant`, `tool`, `summary` (a compaction put it there) or `edit` (a plugin
    /// put it there for one request).
    pub origin: &'static str,
}

/// How the sampling differs in what some providers keep their caches apart by.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SamplingChange {
    /// The members that differ.
    pub changed: Vec<&'static str>,
    /// Who.
    pub by: Vec<Culprit>,
}

/// Who broke a prefix.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum Culprit {
    /// A plugin.
    Plugin {
        /// Which.
        plugin: PluginName,
    },
    /// The command line or the configuration: the session was gone on with in another way.
    Configuration,
    /// Nobody that the log knows: it was changed since.
    Unknown,
}

/// All requests together.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// How many.
    pub requests: u64,
    /// How large they are together.
    #[serde(flatten)]
    pub size: Size,
    /// How much of that each had in common with the one before.
    pub common: Size,
    /// How many were broken.
    pub breaks: u64,
    /// Who broke how many. One that two broke counts for both.
    pub by: Vec<Breaks>,
    /// How many were sent so long after the one before that providers may have forgotten it.
    pub pauses: u64,
    /// What providers counted for them.
    pub usage: Usage,
}

/// How many prefixes somebody broke.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Breaks {
    /// Who.
    #[serde(flatten)]
    pub by: Culprit,
    /// How many.
    pub breaks: u64,
}

impl Summary {
    /// Takes one more into account.
    pub fn add(&mut self, request: &RequestPrefix) {
        self.requests += 1;
        self.size = self.size.plus(request.size);
        self.common = self.common.plus(request.common.unwrap_or_default());
        self.pauses += u64::from(request.pause_ms.is_some());
        self.usage = self.usage.plus(request.usage.unwrap_or_default());
        let Some(broken) = &request.broken else { return };
        self.breaks += 1;
        for culprit in &broken.by {
            match self.by.iter_mut().find(|known| known.by == *culprit) {
                Some(known) => known.breaks += 1,
                None => self.by.push(Breaks { by: culprit.clone(), breaks: 1 }),
            }
        }
    }
}

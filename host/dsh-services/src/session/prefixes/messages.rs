//! The messages of a request: stretches of the model's view, and what listeners put between them. Two requests in a row share most of
//! the view, so they are compared piece by piece, and not message by message.

use std::sync::Arc;

use dsh_seam::PluginName;
use dsh_seam::event::{CompactionApplied, Event, RequestEdit};
use dsh_seam::message::{ContentBlock, Message};
use dsh_seam::view::{History, ModelMessage, Origin};

use super::blame::plugins;
use super::report::{Break, Culprit, Kind, Place, Size};

/// The model's view while a log is read, and what has become of it since the last request.
#[derive(Debug, Default)]
pub(super) struct View {
    history: History,
    /// How large the messages before each are together; one more than there are messages.
    before: Vec<Size>,
    /// How many messages there were at the last request.
    then: usize,
    /// The first message that is no longer what it was then; none: all are.
    changed: Option<usize>,
    /// The messages from there on, as they were then.
    old: Vec<Arc<ModelMessage>>,
    /// The compactions since: where they began, and whose.
    compactions: Vec<(usize, PluginName)>,
}

/// A stretch of a request.
#[derive(Debug, Clone)]
enum Piece {
    /// Messages `start` to before `end` of the view.
    View { start: usize, end: usize },
    /// What a listener put there, perhaps nothing, in the place of others, perhaps none.
    Edit { plugin: PluginName, messages: Vec<Arc<ModelMessage>> },
}

/// The messages of a request.
#[derive(Debug, Clone, Default)]
pub(super) struct Messages(Vec<Piece>);

impl View {
    /// Takes the log's next event into account.
    pub(super) fn apply(&mut self, event: &Event) {
        let mut kept = self.history.len();
        if let Event::CompactionApplied(applied) = event {
            kept = (applied.start as usize).min(kept);
            self.remember(kept, applied);
        }
        self.history.apply(event);
        self.before.truncate(kept + 1);
        if self.before.is_empty() {
            self.before.push(Size::default());
        }
        for message in &self.history.messages()[self.before.len() - 1..] {
            let sum = self.before.last().map_or(size(message), |sum| sum.plus(size(message)));
            self.before.push(sum);
        }
    }

    /// Keeps what a compaction takes out of the last request.
    fn remember(&mut self, start: usize, applied: &CompactionApplied) {
        self.compactions.push((start, applied.plugin.clone()));
        let known = self.changed.unwrap_or(self.then);
        if start < known {
            let mut old = self.history.messages()[start..known].to_vec();
            old.append(&mut self.old);
            self.old = old;
            self.changed = Some(start);
        }
    }

    /// A request goes out: from now on it is the last.
    pub(super) fn sent(&mut self) {
        self.then = self.history.len();
        self.changed = None;
        self.old.clear();
        self.compactions.clear();
    }

    /// The view with the edits of one request.
    pub(super) fn edited(&self, edits: &[RequestEdit]) -> Messages {
        let mut messages = Messages(vec![Piece::View { start: 0, end: self.history.len() }]);
        edits.iter().for_each(|edit| messages.splice(edit));
        messages
    }

    /// A message of the view as it is.
    fn now(&self, at: usize) -> &Arc<ModelMessage> {
        &self.history.messages()[at]
    }

    /// A message of the view as it was at the last request.
    fn then(&self, at: usize) -> &Arc<ModelMessage> {
        match self.changed {
            Some(changed) if at >= changed => &self.old[at - changed],
            _ => self.now(at),
        }
    }

    /// How large the first `count` of these messages are together.
    pub(super) fn size_of(&self, messages: &Messages, count: usize) -> Size {
        let (mut sum, mut left) = (Size::default(), count);
        for piece in &messages.0 {
            let length = piece.len().min(left);
            sum = sum.plus(match piece {
                Piece::View { start, .. } => self.between(*start, start + length),
                Piece::Edit { messages, .. } => {
                    messages[..length].iter().map(|message| size(message)).fold(Size::default(), Size::plus)
                }
            });
            left -= length;
        }
        sum
    }

    fn between(&self, start: usize, end: usize) -> Size {
        // Before the first message there is no sum yet.
        let before = |at: usize| self.before.get(at).copied().unwrap_or_default();
        before(end).minus(before(start))
    }

    /// How many messages at the beginning of `now` are those of `last`, the request before.
    pub(super) fn common(&self, now: &Messages, last: &Messages) -> usize {
        let (mut left, mut right, mut count) = (Cursor::default(), Cursor::default(), 0);
        while let (Some(a), Some(b)) = (left.piece(now), right.piece(last)) {
            let same = match (a, b) {
                (Piece::View { start, end }, Piece::View { start: old_start, end: old_end })
                    if start + left.inside == old_start + right.inside
                        && self.changed.is_none_or(|changed| start + left.inside < changed) =>
                {
                    let from = start + left.inside;
                    (*end).min(*old_end).min(self.changed.unwrap_or(usize::MAX)) - from
                }
                _ => {
                    let (a, b) = (self.message_now(a, left.inside), self.message_then(b, right.inside));
                    usize::from(is_same(a, b))
                }
            };
            if same == 0 {
                break;
            }
            left.inside += same;
            right.inside += same;
            count += same;
        }
        count
    }

    fn message_now<'a>(&'a self, piece: &'a Piece, inside: usize) -> &'a Arc<ModelMessage> {
        match piece {
            Piece::View { start, .. } => self.now(start + inside),
            Piece::Edit { messages, .. } => &messages[inside],
        }
    }

    fn message_then<'a>(&'a self, piece: &'a Piece, inside: usize) -> &'a Arc<ModelMessage> {
        match piece {
            Piece::View { start, .. } => self.then(start + inside),
            Piece::Edit { messages, .. } => &messages[inside],
        }
    }

    /// What is to be told of two requests whose messages differ from `index` on; none: one of them has no more.
    pub(super) fn broken(&self, now: &Messages, last: &Messages, index: usize) -> Option<Break> {
        let ((piece, inside), (last_piece, last_inside)) = (now.find(index)?, last.find(index)?);
        let after = kind(self.message_now(piece, inside));
        let before = kind(self.message_then(last_piece, last_inside));
        Some(Break { place: Place::Messages { index, before, after }, by: self.blame(now, last, index) })
    }

    /// Who made message `index` differ: whose edit it is or was, else who took away what stood before it, else whose compaction it was.
    fn blame(&self, now: &Messages, last: &Messages, index: usize) -> Vec<Culprit> {
        let edits = [now.editor(index), last.editor(index), now.remover(index), last.remover(index)];
        if let Some(plugin) = edits.into_iter().flatten().next() {
            return plugins([plugin.clone()]);
        }
        let place = match now.find(index) {
            Some((Piece::View { start, .. }, inside)) => start + inside,
            _ => index,
        };
        let here = self.compactions.iter().filter(|(start, _)| *start <= place);
        let found = plugins(here.map(|(_, plugin)| plugin.clone()));
        if found.is_empty() { vec![Culprit::Unknown] } else { found }
    }
}

/// A place in a list of messages, that goes on.
#[derive(Default)]
struct Cursor {
    piece: usize,
    inside: usize,
}

impl Cursor {
    /// The piece that the next message is in.
    fn piece<'a>(&mut self, messages: &'a Messages) -> Option<&'a Piece> {
        loop {
            let piece = messages.0.get(self.piece)?;
            if self.inside < piece.len() {
                return Some(piece);
            }
            self.inside -= piece.len();
            self.piece += 1;
        }
    }
}

impl Piece {
    fn len(&self) -> usize {
        match self {
            Piece::View { start, end } => end - start,
            Piece::Edit { messages, .. } => messages.len(),
        }
    }

    /// What is before `at` and what is not.
    fn split(self, at: usize) -> (Piece, Piece) {
        match self {
            Piece::View { start, end } => {
                (Piece::View { start, end: start + at }, Piece::View { start: start + at, end })
            }
            Piece::Edit { plugin, mut messages } => {
                let rest = messages.split_off(at);
                (Piece::Edit { plugin: plugin.clone(), messages }, Piece::Edit { plugin, messages: rest })
            }
        }
    }
}

impl Messages {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.0.iter().map(Piece::len).sum()
    }

    /// Puts an edit in. One beyond the end (of a log that was changed) takes out what is there.
    fn splice(&mut self, edit: &RequestEdit) {
        let mut rest = self.cut(edit.start as usize);
        let mut inside = Messages(std::mem::take(&mut rest));
        let after = inside.cut(edit.count as usize);
        let message = |message: &Message| Arc::new(ModelMessage::new(message.clone(), Origin::Edit));
        let messages = edit.replacement.iter().map(message).collect();
        self.0.push(Piece::Edit { plugin: edit.plugin.clone(), messages });
        self.0.extend(after);
    }

    /// Takes out all from message `at` on.
    fn cut(&mut self, at: usize) -> Vec<Piece> {
        let mut before = 0;
        for index in 0..self.0.len() {
            let length = self.0[index].len();
            if before + length > at {
                let mut rest = self.0.split_off(index);
                let (left, right) = rest.remove(0).split(at - before);
                self.0.push(left);
                rest.insert(0, right);
                return rest;
            }
            before += length;
        }
        Vec::new()
    }

    /// The piece that message `index` is in, and its place there.
    fn find(&self, index: usize) -> Option<(&Piece, usize)> {
        let mut before = 0;
        for piece in &self.0 {
            if index < before + piece.len() {
                return Some((piece, index - before));
            }
            before += piece.len();
        }
        None
    }

    /// Whose edit message `index` is.
    fn editor(&self, index: usize) -> Option<&PluginName> {
        match self.find(index)?.0 {
            Piece::Edit { plugin, .. } => Some(plugin),
            Piece::View { .. } => None,
        }
    }

    /// Who took away what stood right before message `index`.
    fn remover(&self, index: usize) -> Option<&PluginName> {
        let mut before = 0;
        for piece in &self.0 {
            match piece {
                Piece::Edit { plugin, messages } if messages.is_empty() && before == index => return Some(plugin),
                _ if before > index => return None,
                _ => before += piece.len(),
            }
        }
        None
    }
}

fn size(message: &ModelMessage) -> Size {
    Size { bytes: message.bytes.into(), tokens: message.tokens.into() }
}

fn kind(message: &ModelMessage) -> Kind {
    let origin = match message.origin {
        Origin::User => "user",
        Origin::Steering => "steering",
        Origin::Context => "context",
        Origin::Assistant => "assistant",
        Origin::Tool => "tool",
        Origin::Summary => "summary",
        Origin::Edit => "edit",
    };
    Kind { role: message.message.role, origin }
}

/// Whether a provider reads the same. A hint where to cache is not part of what it reads.
fn is_same(left: &Arc<ModelMessage>, right: &Arc<ModelMessage>) -> bool {
    Arc::ptr_eq(left, right)
        || left.message == right.message
        || (left.message.role == right.message.role && unhinted(&left.message) == unhinted(&right.message))
}

fn unhinted(message: &Message) -> Vec<ContentBlock> {
    let mut content = message.content.clone();
    for block in &mut content {
        match block {
            ContentBlock::Text(block) => block.cache = None,
            ContentBlock::Image(block) => block.cache = None,
            ContentBlock::ToolResult(result) => result.cache = None,
            ContentBlock::Reasoning(_) | ContentBlock::ToolCall(_) | ContentBlock::Other(_) => {}
        }
    }
    content
}

//! The tools of requests as they were written: they seldom change, and are long.

use std::sync::{Arc, Mutex, PoisonError};

use dsh_seam::message::ToolSchema;

/// How many lists are kept: one for each agent that takes its turn, and one for each model it may go over to.
const MAX_KEPT: usize = 8;

/// Lists of tools as they were last written, the latest first.
#[derive(Default)]
pub(in super::super) struct WrittenTools(Mutex<Vec<Kept>>);

struct Kept {
    dialect: Arc<str>,
    tools: Arc<[ToolSchema]>,
    text: Arc<str>,
}

impl WrittenTools {
    /// `tools` in the words of `dialect`, written once: an agent offers the same list step for step.
    pub fn get(
        &self,
        dialect: &Arc<str>,
        tools: &Arc<[ToolSchema]>,
        write: impl FnOnce(&[ToolSchema]) -> String,
    ) -> Arc<str> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The list itself is kept, so that no other one can come to stand at its address.
        let same = |kept: &Kept| Arc::ptr_eq(&kept.tools, tools) && kept.dialect == *dialect;
        match kept.iter().position(same) {
            Some(at) => kept[..=at].rotate_right(1),
            None => {
                kept.truncate(MAX_KEPT - 1);
                let text = write(tools).into();
                kept.insert(0, Kept { dialect: dialect.clone(), tools: tools.clone(), text });
            }
        }
        kept[0].text.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn list(name: &str) -> Arc<[ToolSchema]> {
        let (name, parameters) = (name.to_owned(), json!({}));
        [ToolSchema { name, description: String::new(), parameters, strict: None }].into()
    }

    #[test]
    fn a_list_is_written_once() {
        let written = WrittenTools::default();
        let (one, other, dialect) = (list("a"), list("b"), Arc::from("x"));
        let get = |tools, fresh: &str| written.get(&dialect, tools, |tools| format!("{fresh} {}", tools[0].name));
        assert_eq!(&*get(&one, "1"), "1 a");
        assert_eq!(&*get(&other, "2"), "2 b");
        assert_eq!(&*get(&one, "3"), "1 a");
        assert_eq!(&*written.get(&Arc::from("y"), &one, |_| "of y".into()), "of y");
        let others: Vec<_> = (0..MAX_KEPT).map(|_| list("c")).collect();
        others.iter().for_each(|list| drop(get(list, "4")));
        assert_eq!(&*get(&one, "5"), "5 a");
        assert_eq!(written.0.lock().expect("unpoisoned").len(), MAX_KEPT);
    }
}

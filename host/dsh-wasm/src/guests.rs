//! The exports of a plugin, one field per seam: indices looked up once per plugin, functions once per instance.

use wasmtime::component::{Instance, InstancePre};
use wasmtime::{AsContextMut, Result};

use crate::bindings::exports::dsh::agent::{request, request_error, step_result, turn_continuation};
use crate::bindings::exports::dsh::plugin::configure;
use crate::bindings::exports::dsh::session::{flush, observer};
use crate::bindings::exports::dsh::system_prompt::section;
use crate::bindings::exports::dsh::tools::{execute, guard, provider};
use crate::words::Seam;

macro_rules! guests {
    ($($field:ident: $module:ident => $seam:ident),* $(,)?) => {
        /// Where in a component the functions of each seam are; none for a seam that it does not export, or may not use.
        #[derive(Clone, Default)]
        pub(crate) struct Indices {
            $($field: Option<$module::GuestIndices>,)*
        }

        /// The functions of one instance.
        pub(crate) struct Guests {
            $(pub $field: Option<$module::Guest>,)*
        }

        impl Indices {
            /// Looks up the functions of `seams`.
            pub(crate) fn new<T>(pre: &InstancePre<T>, seams: &[Seam]) -> Result<Self> {
                Ok(Self {
                    $($field: if seams.contains(&Seam::$seam) { Some($module::GuestIndices::new(pre)?) } else { None },)*
                })
            }

            /// Whether the functions of `seam` are there.
            pub(crate) fn has(&self, seam: Seam) -> bool {
                match seam {
                    $(Seam::$seam => self.$field.is_some(),)*
                }
            }

            /// The functions of `instance`, with their types checked.
            pub(crate) fn load(&self, mut store: impl AsContextMut, instance: &Instance) -> Result<Guests> {
                Ok(Guests {
                    $($field: match &self.$field {
                        Some(indices) => Some(indices.load(&mut store, instance)?),
                        None => None,
                    },)*
                })
            }
        }
    };
}

guests! {
    request: request => Request,
    request_error: request_error => RequestError,
    step_result: step_result => StepResult,
    turn_continuation: turn_continuation => TurnContinuation,
    execute: execute => Execute,
    guard: guard => Guard,
    provider: provider => Provider,
    observer: observer => Observer,
    flush: flush => Flush,
    section: section => Section,
    configure: configure => Configure,
}

//! Exports a guard of the right version with another signature: the host must refuse it before it compiles it.

mod bindings {
    wit_bindgen::generate!({
        inline: "package dsh:tools@0.1.0;
            interface guard { check: func(name: string) -> option<string>; }
            world wrong-shape { export guard; }",
    });
}

struct WrongShape;

impl bindings::exports::dsh::tools::guard::Guest for WrongShape {
    fn check(_name: String) -> Option<String> {
        None
    }
}

bindings::export!(WrongShape with_types_in bindings);

//! Exports a guard of version 0.9.0, which does not exist: the host must refuse it, and say which versions it takes.

mod bindings {
    wit_bindgen::generate!({
        inline: "package dsh:tools@0.9.0;
            interface guard { check: func(name: string) -> option<string>; }
            world wrong-version { export guard; }",
    });
}

struct WrongVersion;

impl bindings::exports::dsh::tools::guard::Guest for WrongVersion {
    fn check(_name: String) -> Option<String> {
        None
    }
}

bindings::export!(WrongVersion with_types_in bindings);

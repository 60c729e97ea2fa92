//! A component without any seam: the host must refuse it, and say which seams there are.

mod bindings {
    wit_bindgen::generate!({ inline: "package test:seamless; world seamless { export greet: func() -> string; }" });
}

struct Seamless;

impl bindings::Guest for Seamless {
    fn greet() -> String {
        "hello".to_owned()
    }
}

bindings::export!(Seamless with_types_in bindings);

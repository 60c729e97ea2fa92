;; Its failure has escape sequences of a terminal, a NUL, a new line and an override of the direction of text in its code and in its message.
;; world: export dsh:agent/request@0.1.0;
;; fails: agent/request error: \u{1b}]0;owned\u{7}\u{1b}[2J\u{1b}[31m\u{0} \u{202e}error: forged\u{9b}31m\u{7f} (`\u{1b}]0;owned\u{7}\u{1b}[2J\u{1b}[31m\u{0} \u{202e}error: forged\u{9b}31m\u{7f}`)
(data (i32.const 0) "\1b]0;owned\07\1b[2J\1b[31m\00\0d\0a\e2\80\aeerror: forged\c2\9b31m\7f")
(func (export "dsh:agent/request@0.1.0#handle") (param $turn i32) (param $step i32) (param $request i32) (param $next i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (i32.store8 (i32.const 1024) (i32.const 1)) (i32.store (i32.const 1028) (i32.const 0)) (i32.store (i32.const 1032) (i32.const 44)) (i32.store (i32.const 1036) (i32.const 0)) (i32.store (i32.const 1040) (i32.const 44)) (return (i32.const 1024))))
  (call $request-next.run (local.get $next) (i32.const 2048))
  (call $ok))

;; A function of it calls itself for ever.
;; world: export dsh:agent/request@0.1.0;
;; fails: agent/request limit: its calls nest deeper than the limit `stack-kib` of 512 KiB (recursion without end?)
(func $again (call $again) (call $again))
(func (export "dsh:agent/request@0.1.0#handle") (param $turn i32) (param $step i32) (param $request i32) (param $next i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (call $again)))
  (call $request-next.run (local.get $next) (i32.const 2048))
  (call $ok))

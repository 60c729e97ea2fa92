;; It sets half a value in its state, and hands on what it is told.
;; world: import dsh:plugin/state@0.1.0;
;; world: export dsh:agent/request@0.1.0;
;; fails: agent/request error: the value of `k` is not valid JSON: EOF while parsing a value at line 1 column 6 (`invalid-argument`)
(data (i32.const 0) "k{\"a\": ")
(func (export "dsh:agent/request@0.1.0#handle") (param $turn i32) (param $step i32) (param $request i32) (param $next i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (call $state.set (i32.const 0) (i32.const 1) (i32.const 1) (i32.const 6) (i32.const 2048)) (return (i32.const 2048))))
  (call $request-next.run (local.get $next) (i32.const 2048))
  (call $ok))

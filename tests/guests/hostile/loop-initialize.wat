;; Its `_initialize`, which languages run before anything else, never ends.
;; world: export dsh:agent/request@0.1.0;
;; limit: cpu-ms 5
;; fails: agent/request limit: it computed for longer than the limit `cpu-ms` of 5 ms
;; always: each instance begins with it
(func (export "_initialize") (loop (br 0)))
(func (export "dsh:agent/request@0.1.0#handle") (param $turn i32) (param $step i32) (param $request i32) (param $next i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then ))
  (call $request-next.run (local.get $next) (i32.const 2048))
  (call $ok))

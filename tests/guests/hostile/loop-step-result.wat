;; It loops for ever in `agent/step-result`.
;; world: export dsh:agent/step-result@0.1.0;
;; limit: cpu-ms 5
;; fails: agent/step-result limit: it computed for longer than the limit `cpu-ms` of 5 ms
(func (export "dsh:agent/step-result@0.1.0#handle") (param $turn i32) (param $step i32) (param $role i32) (param $blocks i32) (param $count i32) (param $next i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (loop (br 0))))
  (call $said (local.get $blocks) (local.get $count)))

;; It asks what 4,294,967,295 messages from the first one on weigh.
;; world: export dsh:agent/request@0.1.0;
;; fails: agent/request error: messages 1 to 4294967296 are beyond the end: there are 3 (`invalid-argument`)
(func (export "dsh:agent/request@0.1.0#handle") (param $turn i32) (param $step i32) (param $request i32) (param $next i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (call $llm-request.outline (local.get $request) (i32.const 1) (i32.const 0xffffffff) (i32.const 2048)) (return (i32.const 2048))))
  (call $request-next.run (local.get $next) (i32.const 2048))
  (call $ok))

"use strict";

// Meshes drawn with WebGL, as mesh.py's posters are.
const VERTEX = `#version 300 es
in vec3 place;
in vec3 normal;
uniform mat3 axes; // to the right, up, towards us
uniform float reach;
out vec3 seen;
out vec3 bent;
void main() {
  seen = axes * place * 2.0;
  bent = axes * normal;
  gl_Position = vec4(seen.xy / reach, -seen.z / 4.0, 1.0);
}`;
const FRAGMENT = `#version 300 es
precision highp float;
in vec3 seen;
in vec3 bent;
out vec4 colour;
const vec3 light = normalize(vec3(-0.35, 0.8, 0.5));
const vec3 clay = vec3(201.0, 162.0, 126.0) / 255.0;
void main() { // smooth, but where the surface has an edge
  vec3 face = normalize(cross(dFdx(seen), dFdy(seen)));
  vec3 round = normalize(bent) * (dot(bent, face) < 0.0 ? -1.0 : 1.0);
  vec3 normal = normalize(mix(face, round, smoothstep(0.6, 0.9, dot(face, round))));
  if (normal.z < 0.0) normal = -normal;
  colour = vec4((0.3 + 0.85 * (0.5 + 0.5 * dot(normal, light))) * clay, 1.0);
}`;

// Vertices as shorts, triangles and normals of what mesh.py packed.
function unpacked(text) {
  const { buffer } = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const [count, triangles] = new Uint32Array(buffer, 0, 2);
  const faces = new (count > 65535 ? Uint32Array : Uint16Array)(buffer, 8, 3 * triangles);
  const places = new Int16Array(buffer, 8 + faces.byteLength, 3 * count);
  const normals = new Float32Array(3 * count);
  for (let at = 0; at < faces.length; at += 3) {
    const [a, b, c] = [3 * faces[at], 3 * faces[at + 1], 3 * faces[at + 2]];
    const [u, v] = [b, c].map((p) => [0, 1, 2].map((i) => (places[p + i] - places[a + i]) / 32767));
    for (let i = 0; i < 3; i++) {
      const [j, k] = [(i + 1) % 3, (i + 2) % 3];
      const part = u[j] * v[k] - u[k] * v[j];
      for (const p of [a, b, c]) normals[p + i] += part;
    }
  }
  return { faces, places, normals };
}

// A canvas with load(text) and draw(axes, reach); null where there is no WebGL.
function meshCanvas() {
  const canvas = document.createElement("canvas");
  const gl = canvas.getContext("webgl2", { antialias: true });
  if (!gl) return null;
  const program = gl.createProgram();
  for (const [kind, source] of [[gl.VERTEX_SHADER, VERTEX], [gl.FRAGMENT_SHADER, FRAGMENT]]) {
    const shader = gl.createShader(kind);
    gl.shaderSource(shader, source);
    gl.compileShader(shader);
    gl.attachShader(program, shader);
  }
  gl.linkProgram(program);
  if (!gl.getProgramParameter(program, gl.LINK_STATUS)) return null;
  gl.useProgram(program);
  gl.enable(gl.DEPTH_TEST);
  gl.clearColor(253 / 255, 253 / 255, 252 / 255, 1); // the poster's paper
  const [places, normals, faces] = [1, 2, 3].map(() => gl.createBuffer());
  let count = 0;
  let kind = gl.UNSIGNED_SHORT;

  function attribute(name, buffer, values, type) {
    const at = gl.getAttribLocation(program, name);
    gl.bindBuffer(gl.ARRAY_BUFFER, buffer);
    gl.bufferData(gl.ARRAY_BUFFER, values, gl.STATIC_DRAW);
    gl.enableVertexAttribArray(at);
    gl.vertexAttribPointer(at, 3, type, type === gl.SHORT, 0, 0);
  }

  function load(text) {
    const mesh = unpacked(text);
    attribute("place", places, mesh.places, gl.SHORT);
    attribute("normal", normals, mesh.normals, gl.FLOAT);
    gl.bindBuffer(gl.ELEMENT_ARRAY_BUFFER, faces);
    gl.bufferData(gl.ELEMENT_ARRAY_BUFFER, mesh.faces, gl.STATIC_DRAW);
    count = mesh.faces.length;
    kind = mesh.faces.BYTES_PER_ELEMENT === 4 ? gl.UNSIGNED_INT : gl.UNSIGNED_SHORT;
  }

  function draw(axes, reach) {
    const [width, height] = [canvas.clientWidth, canvas.clientHeight].map((length) =>
      Math.max(1, Math.round(length * devicePixelRatio)));
    if (canvas.width !== width) canvas.width = width;
    if (canvas.height !== height) canvas.height = height;
    const side = Math.min(width, height);
    gl.viewport((width - side) / 2, (height - side) / 2, side, side);
    gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT);
    gl.uniformMatrix3fv(gl.getUniformLocation(program, "axes"), true, axes);
    gl.uniform1f(gl.getUniformLocation(program, "reach"), reach);
    if (count) gl.drawElements(gl.TRIANGLES, count, kind, 0);
  }

  canvas.className = "solid";
  canvas.addEventListener("webglcontextlost", () => {
    canvas.hidden = true; // the poster is beneath
  });
  return { canvas, load, draw };
}

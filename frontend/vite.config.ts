// Build of the committed bundle, which lets users install without node: files with fixed names, the
// licences of the bundled libraries, and a digest of the sources, which a test compares.
import { createHash } from 'node:crypto'
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { defineConfig, type Plugin } from 'vite'

const OUT = '../src/koordinator/dashboard/static'
const SOURCES = ['index.html', 'package.json', 'package-lock.json', 'tsconfig.json', 'vite.config.ts']
const BUNDLED = ['preact', 'uplot']

function sources(): string[] {
  const below = readdirSync('src', { recursive: true, withFileTypes: true })
  const own = below.filter((one) => one.isFile()).map((one) => join(one.parentPath, one.name))
  return [...SOURCES, ...own].sort()
}

function provenance(): Plugin {
  return {
    name: 'provenance',
    closeBundle() {
      const digest = createHash('sha256')
      for (const name of sources()) digest.update(name).update('\0').update(readFileSync(name)).update('\0')
      writeFileSync(join(OUT, 'sources.sha256'), `${digest.digest('hex')}\n`)
      const texts = BUNDLED.map((name) => `${name}\n\n${readFileSync(`node_modules/${name}/LICENSE`, 'utf8')}`)
      writeFileSync(join(OUT, 'licenses.txt'), texts.join('\n'))
    },
  }
}

export default defineConfig({
  base: './',
  plugins: [provenance()],
  esbuild: { jsx: 'automatic', jsxImportSource: 'preact', legalComments: 'none' },
  build: {
    outDir: OUT,
    emptyOutDir: true,
    target: 'es2022',
    modulePreload: false,
    cssCodeSplit: false,
    rollupOptions: {
      output: {
        entryFileNames: 'dashboard.js',
        assetFileNames: 'dashboard.[ext]',
        inlineDynamicImports: true,
      },
    },
  },
})
